#!/usr/bin/env bash
# Mutual TLS between workers: a decode worker and two prefill workers, one of its authority, one of another. Wants the
# same text whoever prefills, transfers from the trusted one only, and no block held for the other.
# Usage: kv_tls_test.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
bin=${1:?usage: kv_tls_test.sh BUILD_FOLDER}/bin
model=${PENSTOCK_MODEL:-$("$root/deploy/dependencies" --model | tail -n 1)}
lease_ms=500 router_port='' router_admin=''
# shellcheck disable=SC2034 # lib.sh uses them
prompt_words=400 output_tokens=20
state=$(mktemp -d)
# shellcheck disable=SC2034
declare -A via_of=()
# shellcheck source=tests/e2e/faults/lib.sh
. "$here/lib.sh"
trap finish EXIT

head -c 32 /dev/urandom >"$state/ticket.key"
chmod 600 "$state/ticket.key"

certify() { # AUTHORITY NAME: a certificate for 127.0.0.1
  local authority="$state/$1" member="$state/$2"
  [ -e "$authority.pem" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj "/CN=$1" \
    -keyout "$authority-key.pem" -out "$authority.pem" 2>/dev/null
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$member-key.pem" -out "$member.csr" 2>/dev/null
  openssl x509 -req -in "$member.csr" -CA "$authority.pem" -CAkey "$authority-key.pem" -CAcreateserial -days 1 \
    -extfile <(echo 'subjectAltName = IP:127.0.0.1') -out "$member.pem" 2>/dev/null
}

declare -A control_of=()
worker() { # NAME ROLE AUTHORITY
  local kv admin
  pick_port "control_of[$1]" kv admin
  certify "$3" "$1"
  launch "$1" 127.0.0.1 "$admin" "$bin/penstock-worker" --model "$model" --model-name fake --executor fake --role "$2" \
    --control-port "${control_of[$1]}" --kv-port "$kv" --admin-port "$admin" --kv-lease ${lease_ms}ms --kv-pool 64MiB \
    --ticket-key-file "$state/ticket.key" --kv-tls-cert-file "$state/$1.pem" --kv-tls-key-file "$state/$1-key.pem" \
    --kv-tls-ca-file "$state/ours.pem"
}
router() { # WORKER...: those that it knows
  local name known=()
  for name in "$@"; do known+=(--worker "127.0.0.1:${control_of[$name]}"); done
  pick_port router_port router_admin
  launch router 127.0.0.1 "$router_admin" "$bin/penstock-router" --port "$router_port" --admin-port "$router_admin" \
    "${known[@]}" --ticket-key-file "$state/ticket.key"
  until_true 60 'the router is not ready' ready_code router
  until_true 30 'the router does not see its workers' workers_connected $#
}
# Ends the router, and gives the decode worker an empty prefix cache: what it has is not transferred again.
start_afresh() {
  local name
  for name in router d0; do
    kill -KILL "${pid_of[$name]}"
    { wait "${pid_of[$name]}" || true; } 2>/dev/null
  done
  relaunch d0
  until_true 60 'd0 is not ready again' ready_code d0
}
committed() {
  fetch d0 /metrics | awk '/^penstock_worker_transfers_total\{/ && /committed/ && /receive/ { n += $2 } END { printf "%d", n }'
}
check_ends() { # TAG: the stream's end, and the pools
  local name
  [[ $(text_of "$state/$1") == *' | length done' ]] || fail "$1: the stream did not end well: $(tail -c 300 "$state/$1")"
  for name in trusted stranger d0; do
    until_true $((lease_ms / 1000 + 2)) "$1: blocks of $name are not free" is_empty "$name"
  done
}

worker trusted prefill ours
worker stranger prefill theirs
worker d0 decode ours
for name in trusted stranger d0; do until_true 60 "$name is not ready" ready_code "$name"; done

router stranger d0
ask long "$state/by-stranger"
check_ends by-stranger
[ "$(committed)" = 0 ] || fail 'KV came from a worker whose certificate is not trusted'
grep -q 'certificate verify failed' "$state/d0.log" || fail 'the decode worker does not say why'
start_afresh
echo 'passed: a stranger hands over nothing, and the stream is whole'

router trusted d0
ask long "$state/by-trusted"
check_ends by-trusted
[ "$(committed)" -gt 0 ] || fail 'nothing was transferred between workers of one authority'
[ "$(text_of "$state/by-trusted")" = "$(text_of "$state/by-stranger")" ] || fail 'the texts differ'
echo 'passed: mutual TLS between workers'
