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
lease_ms=500 router_port='' router_admin=''
# shellcheck disable=SC2034 # lib.sh uses them
prompt_words=400 output_tokens=60
state=$(mktemp -d)
declare -A via_of=()
# shellcheck source=tests/e2e/faults/lib.sh
. "$here/lib.sh"

clean_up() {
  ip netns del "$near" 2>/dev/null || true
  ip netns del "$far" 2>/dev/null || true
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
# The kernel tells at most once a second that a link came up, and UCX takes only devices that are up when a worker starts.
is_up() { [ "$(ip netns exec "$1" cat "/sys/class/net/$2/operstate")" = up ]; }
until_true 10 "$near has no link" is_up "$near" veth0
until_true 10 "$far has no link" is_up "$far" veth1

head -c 32 /dev/urandom >"$state/ticket.key"
chmod 600 "$state/ticket.key"

declare -A control_of=() kv_of=() worker_admin_of=()
pick_port router_port router_admin
for name in p0 d0 d1; do pick_port "control_of[$name]" "kv_of[$name]" "worker_admin_of[$name]"; done

worker() { # NAME ROLE NAMESPACE IP
  via_of[$1]="ip netns exec $3"
  launch "$1" "$4" "${worker_admin_of[$1]}" ip netns exec "$3" env UCX_TLS=tcp "$bin/penstock-worker" \
    --model "$model" --model-name fake --executor fake --role "$2" \
    --control-address "$4" --control-port "${control_of[$1]}" --kv-address "$4" --kv-port "${kv_of[$1]}" \
    --admin-address "$4" --admin-port "${worker_admin_of[$1]}" \
    --kv-transfer trusted-fabric --insecure-plaintext --kv-lease ${lease_ms}ms --kv-pool 64MiB \
    --prefill-chunk-tokens 64 --fake-step-time 15ms --fake-token-time 4ms --ticket-key-file "$state/ticket.key"
}

worker p0 prefill "$near" $near_ip
worker d0 decode "$far" $far_ip
via_of[router]="ip netns exec $near"
launch router 127.0.0.1 "$router_admin" ip netns exec "$near" "$bin/penstock-router" \
  --port "$router_port" --admin-port "$router_admin" --insecure-plaintext \
  --worker "$near_ip:${control_of[p0]}" --worker "$far_ip:${control_of[d0]}" --worker "$near_ip:${control_of[d1]}" \
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

is_empty_soon() { until_true $((lease_ms / 1000 + 2)) "blocks of $1 are not free" is_empty "$1"; }

# Every twentieth packet that comes over the link is dropped, at random. The rule lives in the namespace and ends with it.
lose_packets() { # NAMESPACE DEVICE
  ip netns exec "$1" nft -f - 2>/dev/null <<EOF
table inet loss {
  chain incoming {
    type filter hook input priority 0;
    iifname "$2" numgen random mod 100 < 5 counter drop
  }
}
EOF
}
packets_lost() { ip netns exec "$1" nft list table inet loss | grep -oP 'packets \K[0-9]+'; }
lose_nothing() { ip netns exec "$1" nft delete table inet loss; }

if lose_packets "$near" veth0 && lose_packets "$far" veth1; then
  before=$(committed)
  for i in 1 2 3; do
    ask "loss-$i" "$state/loss-$i"
    [[ $(text_of "$state/loss-$i") == *' | length done' ]] || fail "the stream under loss is wrong: $(tail -c 300 "$state/loss-$i")"
    is_empty_soon p0
    is_empty_soon d0
  done
  lost="$(packets_lost "$near") and $(packets_lost "$far")"
  [[ $lost != '0 and'* && $lost != *'and 0' ]] || fail "no packets were lost: $lost"
  [ "$(committed)" -gt "$before" ] || fail 'nothing was transferred under loss'
  lose_nothing "$near"
  lose_nothing "$far"
  for i in 1 2 3; do
    ask "loss-$i" "$state/again"
    [ "$(text_of "$state/again")" = "$(text_of "$state/loss-$i")" ] || fail 'the stream under loss has another text'
  done
  echo "passed: 5 % loss both ways ($lost packets)"
else
  echo 'skipped: packets cannot be lost here (no nftables)'
fi

worker d1 decode "$near" $near_ip
until_true 60 'd1 is not ready' ready_code d1
until_true 30 'the router does not see d1' workers_connected 3
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
