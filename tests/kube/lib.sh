# shellcheck shell=bash
# For scenarios: what they ask of the cluster and of the service under test. Sourced, not run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=deploy/cluster/kubernetes/lib.sh
. "$root/deploy/cluster/kubernetes/lib.sh"
# shellcheck source=deploy/cluster/kubernetes/node.sh
. "$root/deploy/cluster/kubernetes/node.sh"
# shellcheck source=deploy/cluster/kubernetes/control_plane.sh
. "$root/deploy/cluster/kubernetes/control_plane.sh"
# shellcheck disable=SC2034 # used by lib.sh
programs=$(cat "$state/programs")
namespace="test"
bin=$root/build/release/bin

k() { kubectl -n "$namespace" "$@"; }
step() { printf '\n== %s\n' "$*"; }

# eventually SECONDS COMMAND...: until it succeeds.
eventually() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || fail "not within the time: $*"
    sleep 0.5
  done
}
equals() { [ "$1" = "$2" ] || fail "$3: '$1' instead of '$2'"; }

# service NAME PREFILL DECODE [EXTRA_SPEC]: an LLMService on the default model, as YAML. EXTRA_SPEC are lines of its spec.
service() {
  cat <<YAML
apiVersion: penstock.dev/v1alpha1
kind: LLMService
metadata: {name: $1, namespace: $namespace}
spec:
  model: {name: smollm2, uri: "file:///models/$(basename "$PENSTOCK_MODEL")"}
  security: {kvTransfer: TrustedFabric}
  roles:
  - {name: router, type: Router}
$(role prefill Prefill "$2")
$(role decode Decode "$3")
${4:-}
YAML
}
# MiB of a worker's KV pool: what scenarios change to get a new revision.
pool() { cat "$state/pool" 2>/dev/null || echo 128; }
role() {
  cat <<YAML
  - name: $1
    type: $2
    replicas: $3
    accelerators: {count: 0}
    sharedMemory: 64Mi
    drainSeconds: 20
    settings: {kv-pool: $(pool)MiB, threads: "1"}
    template:
      spec:
        containers:
        - name: worker
          resources: {requests: {cpu: 50m, memory: 256Mi}}
          volumeMounts: [{name: models, mountPath: /models, readOnly: true}]
        volumes:
        - {name: models, hostPath: {path: "$(dirname "$PENSTOCK_MODEL")", type: Directory}}
YAML
}

# unified NAME REPLICAS [EXTRA_SPEC] [EXTRA_CONTAINER]: one role of workers that do all of it, with a line more for its container.
unified() {
  service "$1" 0 0 "${3:-}" | sed '/^  - name: prefill/,/^  - name: decode/{/^  - name: decode/!d}' |
    sed -e 's/^  - name: decode/  - name: worker/; s/type: Decode/type: Unified/' -e "s/^    replicas: 0/    replicas: $2/" |
    if [ -n "${4:-}" ]; then sed "s|^        - name: worker|&\n          $4|"; else cat; fi
}
# condition_is KIND/NAME TYPE STATUS REASON: REASON is a regular expression.
condition_of() { k get "$1" -o "jsonpath={range .status.conditions[?(@.type==\"$2\")]}{.status} {.reason} {.message}{end}" 2>/dev/null; }
condition_is() { [[ $(condition_of "$1" "$2") =~ ^$3\ ($4)(\ |$) ]]; }

is_ready() { [ "$(k get llm "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)" = True ]; }
ready_of() { k get llm "$1" -o "jsonpath={.status.roles[?(@.name==\"$2\")].ready}" 2>/dev/null; }
has_ready() { [ "$(ready_of "$1" "$2")" = "$3" ]; }
# Pods of a role, those on their way out included.
pods_are() { [ "$(k get pods -l "penstock.dev/service=$1,penstock.dev/role=$2" -o name | wc -l)" = "$3" ]; }
# The chat service of two prefill and two decode workers, with nothing else about.
at_rest() {
  eventually 120 is_ready chat
  eventually 60 pods_are chat decode 2
  eventually 60 pods_are chat prefill 2
}
address_of() { k get service "$1" -o 'jsonpath={.spec.clusterIP}'; }
ask() {
  inside 0 curl -sf --max-time 60 "http://$(address_of "$1"):8000/v1/completions" -H 'content-type: application/json' \
    -d '{"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}' | jq -er '.choices[0].text'
}

# Streams without a pause until end_load, which fails if any request did.
start_load() {
  # Not by `inside`: the pid must be that of the program.
  nsenter --net="/run/netns/$(namespace_of 0)" "$bin/kube_stream_load" --host "$(address_of "$1")" --port 8000 --model smollm2 --clients "${2:-3}" \
    >"$state/load.json" 2>"$state/load.err" &
  load_pid=$!
  trap 'kill "$load_pid" 2>/dev/null || true' EXIT
  sleep 2
}
end_load() {
  kill -TERM "$load_pid"
  wait "$load_pid" || { cat "$state/load.json" "$state/load.err"; fail "requests failed"; }
  trap - EXIT
  cat "$state/load.json"
}

# Writes by the operator since a line of the audit log: writes_since LINE
audit_line() { wc -l <"$state/audit.log"; }
writes_since() {
  tail -n +$(($1 + 1)) "$state/audit.log" |
    jq -r 'select(.user.username | test("penstock-system:penstock")) | select(.verb | IN("create", "update", "patch", "delete"))
           | select(.objectRef.resource != "events") | "\(.verb) \(.objectRef.resource)/\(.objectRef.name)"'
}

# Pods that the operator tried to make in this namespace since a line of the audit log, and was refused.
refused_since() {
  tail -n +$(($1 + 1)) "$state/audit.log" |
    jq -r --arg in "$namespace" 'select(.user.username | test("penstock-system:penstock"))
           | select(.objectRef.resource == "pods" and .objectRef.namespace == $in and .responseStatus.code == 403) | .verb' | wc -l
}
