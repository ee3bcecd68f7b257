#!/usr/bin/env bash
# The KV path over a real network of two namespaces joined by a veth pair, forced to TCP: 5 % loss, then the link goes
# down in the middle of a stream. Wants the same text as on one worker, and empty pools on the side that lives on.
# Creates and deletes its own namespaces; skips with a message where that is not permitted.
# Usage: network_test.sh BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
bin=${1:?usage: network_test.sh BUILD_FOLDER}/bin
model=${PENSTOCK_MODEL:-$("$root/deploy/dependencies" --model | tail -n 1)}
near=penstock-near-$$ far=penstock-far-$$
near_ip=10.222.7.1 far_ip=10.222.7.2
lease_ms=500 router_port=22000
# shellcheck disable=SC2034 # lib.sh uses them
prompt_words=400 output_tokens=60
state=$(mktemp -d)
declare -A via_of=()
# shellcheck source=tests/e2e/faults/lib.sh
. "$here/lib.sh"

finish() {
  local code=$?
  stop_all
  ip netns del "$near" 2>/dev/null || true
  ip netns del "$far" 2>/dev/null || true
  if [ $code != 0 ]; then
    for log in "$state"/*.log; do
      printf -- '--- %s\n' "$log"
      tail -n 15 "$log"
    done
  fi
  rm -rf "$state"
  exit $code
}
trap finish EXIT

if ! ip netns add "$near" 2>/dev/null; then
  echo 'skipped: network namespaces cannot be made here'
  exit 77
fi
ip netns add "$far"
ip -n "$near" link add veth0 type veth peer name veth1 netns "$far"
ip -n "$near" addr add $near_ip/24 dev veth0
ip -n "$far" addr add $far_ip/24 dev veth1
for one in "$near lo" "$near veth0" "$far lo" "$far veth1"; do
  read -r space device <<<"$one"
  ip -n "$space" link set "$device" up
done

head -c 32 /dev/urandom >"$state/ticket.key"
chmod 600 "$state/ticket.key"

worker() { # NAME ROLE INDEX NAMESPACE IP
  via_of[$1]="ip netns exec $4"
  launch "$1" "$5" $((22300 + $3)) ip netns exec "$4" env UCX_TLS=tcp "$bin/penstock-worker" --model "$model" \
    --model-name fake --executor fake --role "$2" --control-address "$5" --control-port $((22100 + $3)) \
    --kv-address "$5" --kv-port $((22200 + $3)) --admin-address "$5" --admin-port $((22300 + $3)) \
    --kv-transfer trusted-fabric --insecure-plaintext --kv-lease ${lease_ms}ms --kv-pool 64MiB \
    --prefill-chunk-tokens 64 --fake-step-time 15ms --fake-token-time 4ms --ticket-key-file "$state/ticket.key"
}

worker p0 prefill 0 "$near" $near_ip
worker d0 decode 1 "$far" $far_ip
via_of[router]="ip netns exec $near"
launch router 127.0.0.1 22001 ip netns exec "$near" "$bin/penstock-router" --port $router_port --admin-port 22001 \
  --worker $near_ip:22100 --worker $far_ip:22101 --worker $near_ip:22102 --insecure-plaintext \
  --ticket-key-file "$state/ticket.key" --limits-no-progress-decode 3s --limits-no-progress-prefill 5s
for name in p0 d0 router; do until_true 60 "$name is not ready" ready_code "$name"; done
until_true 30 'the router does not see the workers' workers_connected 2

committed() { # transfers that D has taken
  fetch d0 /metrics | awk '/^penstock_worker_transfers_total\{/ && /committed/ && /receive/ { n += $2 } END { printf "%d", n }'
}

ask plain "$state/plain"
[[ $(text_of "$state/plain") == *' | length done' ]] || fail "the stream over TCP is wrong: $(tail -c 300 "$state/plain")"
[ "$(committed)" -gt 0 ] || fail 'nothing was transferred over the network'
echo 'passed: tcp between namespaces'

if ip netns exec "$near" tc qdisc add dev veth0 root netem loss 5% 2>/dev/null &&
  ip netns exec "$far" tc qdisc add dev veth1 root netem loss 5% 2>/dev/null; then
  for i in 1 2 3; do
    ask "loss-$i" "$state/loss-$i"
    [[ $(text_of "$state/loss-$i") == *' | length done' ]] || fail "the stream under loss is wrong: $(tail -c 300 "$state/loss-$i")"
  done
  ip netns exec "$near" tc qdisc del dev veth0 root
  ip netns exec "$far" tc qdisc del dev veth1 root
  for i in 1 2 3; do
    ask "loss-$i" "$state/again"
    [ "$(text_of "$state/again")" = "$(text_of "$state/loss-$i")" ] || fail 'the stream under loss has another text'
  done
  echo 'passed: 5 % loss both ways'
else
  echo 'skipped: packets cannot be lost here (no netem)'
fi

worker d1 decode 2 "$near" $near_ip
until_true 60 'd1 is not ready' ready_code d1
until_true 30 'the router does not see d1' workers_connected 3
is_empty_soon() { until_true $((lease_ms / 1000 + 2)) "blocks of $1 are not free" is_empty "$1"; }

for phase in transfer decode; do
  : >"$state/down-$phase"
  ask "down-$phase" "$state/down-$phase" &
  asking=$!
  case $phase in
    transfer) until_true 30 'no transfer began' is_pinned p0 ;;
    decode) until_true 30 'no tokens came' has_chunks "$state/down-$phase" 6 ;;
  esac
  ip -n "$far" link set veth1 down
  wait $asking || fail "down-$phase: the stream broke"
  is_empty_soon p0
  is_empty_soon d1
  ip -n "$far" link set veth1 up
  until_true 30 'the router does not see all workers again' workers_connected 3
  is_empty_soon d0
  for name in p0 d0 d1 router; do kill -0 "${pid_of[$name]}" || fail "$name died, and nobody killed it"; done
  ask "down-$phase" "$state/again"
  [ "$(text_of "$state/down-$phase")" = "$(text_of "$state/again")" ] || fail "down-$phase: the stream differs"
  [[ $(text_of "$state/again") == *' | length done' ]] || fail "down-$phase: the stream did not end well"
  echo "passed: link down during $phase"
done
echo 'network faults: passed'
