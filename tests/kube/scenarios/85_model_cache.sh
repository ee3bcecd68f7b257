# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 400 s. Not in CI: weights come to a node by its agent: progress, a new agent resumes, a service runs from the copy; a wrong
# checksum is said and tried again; deleting all leaves nothing on the node.
. "$(dirname "$0")/../lib.sh"
export KUBECONFIG=$state/kubeconfig/admin
web=$state/web models=$state/models
mkdir -p "$web/good" "$web/bad" "$models"
cp "$PENSTOCK_MODEL" "$web/good/model.gguf"
(cd "$web/good" && sha256sum model.gguf >SHA256SUMS)
head -c 100000 "$PENSTOCK_MODEL" >"$web/bad/part.bin"
printf '%064d  part.bin\n' 0 >"$web/bad/SHA256SUMS"
launch_inside 0 slow-files "$root/tests/kube/slow_files.py" "$server" 8099 "$web" 8000000
trap 'stop_all 5 slow-files; rm -rf "$web"' EXIT

agent() { kubectl -n penstock-system get pods -l app.kubernetes.io/component=agent -o "jsonpath={.items[*]$1}"; }
cache() {
  k apply -f - <<YAML
apiVersion: penstock.dev/v1alpha1
kind: ModelCache
metadata: {name: $1, namespace: $namespace}
spec:
  uri: http://$server:8099/$1/
  size: $2
  nodeSelector: {kubernetes.io/hostname: node-1}
  storage: {hostPath: {path: "$models"}}
YAML
}
entry() { k get nmc node-1 -o json 2>/dev/null | jq -r --arg cache "$namespace/$1" ".status.entries[]? | select(.cache == \$cache) | $2"; }
state_is() { [ "$(entry "$1" .state)" = "$2" ]; }

step "agents"
# The nodes share this machine's disk, so that only one of them may have an agent on a folder.
"$root/deploy/cluster/install" --set modelCacheAgent.enabled=true,modelCacheAgent.hostPath="$models",modelCacheAgent.reserve=1Gi \
  --set 'modelCacheAgent.nodeSelector.kubernetes\.io/hostname=node-1,modelCacheAgent.egressPorts={8099}' \
  --set 'modelCacheAgent.extraArgs={--progress-interval=1s}' >/dev/null
kubectl -n penstock-system rollout status daemonset/penstock-agent --timeout=60s
equals "$(agent .spec.nodeName)" node-1 "nodes with an agent"

step "progress"
cache good 200Mi
size=$(stat -c %s "$PENSTOCK_MODEL")
part() { local bytes; bytes=$(entry good .bytesDone); [ "${bytes:-0}" -gt 8000000 ] && [ "$bytes" -lt "$size" ]; }
eventually 30 part
entry good '"\(.state) \(.bytesDone) of \(.bytes)"'
condition_of mc/good Ready | grep Downloading
step "a new agent goes on where the last one ended"
kubectl -n penstock-system delete pod "$(agent .metadata.name)" --wait=false
eventually 90 state_is good Ready
grep '/good/model.gguf bytes=[1-9]' "$state/slow-files.log"
cmp "$PENSTOCK_MODEL" "$models/$namespace.good/model.gguf"
eventually 20 condition_is mc/good Ready True Present
k get mc,nmc
step "a service runs from the copy"
unified cached 1 | sed -e '/^  model:/s/uri: "[^"]*"/cacheRef: {name: good}/' -e '/volumeMounts: /d' -e '/^        volumes:/,/hostPath/d' | k apply -f -
eventually 120 is_ready cached
equals "$(k get pods -l penstock.dev/service=cached,penstock.dev/role=worker -o 'jsonpath={.items[0].spec.nodeName}')" node-1 "its node"
ask cached | grep Paris

step "a wrong checksum"
cache bad 1Mi
eventually 60 state_is bad Failed
entry bad .message | grep 'the digest of part.bin is wrong'
eventually 20 condition_is mc/bad Ready False DownloadFailed
[ ! -e "$models/$namespace.bad" ] || fail "a copy that is wrong is there"
tries() { grep -c /bad/part.bin "$state/slow-files.log"; }
before=$(tries)
sleep 20
[ $(($(tries) - before)) -le 1 ] || fail "$(($(tries) - before)) tries in 20 s"
step "and the right one"
(cd "$web/bad" && sha256sum part.bin >SHA256SUMS)
eventually 120 state_is bad Ready

step "deleted while a pod uses it"
k delete mc good bad
gone() { [ -z "$(ls -A "$models/$namespace.$1" 2>/dev/null)" ]; }
eventually 30 gone bad
gone good && fail "the copy that a pod uses is gone"
ask cached | grep Paris
step "and afterwards"
k delete llm cached --timeout=60s
eventually 60 gone good
equals "$(find "$models" -mindepth 1 | head -n 3)" "" "what is left on the node"
no_entries() { [ "$(k get nmc node-1 -o json | jq '.status.entries | length')" = 0 ]; }
eventually 20 no_entries
"$root/deploy/cluster/install" >/dev/null
no_agent() { [ -z "$(agent .metadata.name)" ]; }
eventually 30 no_agent
k delete nmc --all
