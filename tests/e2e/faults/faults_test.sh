#!/usr/bin/env bash
# Fault matrix with real processes: a router, two prefill and two decode workers on loopback. Each scenario streams one
# long request, kills or stops the worker that serves it in one phase, and then wants: the text of a fault-free run, empty
# pools on all survivors within a lease and a second, everyone else alive, memory steady. The fake executor's tokens
# depend on every byte of the KV, so a wrong block is a wrong text; it runs the whole matrix, the real model three of it.
# Usage: faults_test.sh BUILD_FOLDER fake|cpu. PENSTOCK_MODEL: the model (fake: whose tokenizer is used).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
bin=${1:?usage: faults_test.sh BUILD_FOLDER fake|cpu}/bin executor=${2:-fake}
model=${PENSTOCK_MODEL:-$("$root/deploy/dependencies" --model | tail -n 1)}
state=$(mktemp -d)
lease_ms=500 router_port='' router_admin=''
# shellcheck disable=SC2034 # lib.sh uses them
prompt_words=400 output_tokens=60
steps=(--fake-step-time 15ms --fake-token-time 4ms)
if [ "$executor" = cpu ]; then steps=(--threads 1); fi
# shellcheck disable=SC2034
declare -A via_of=()
# shellcheck source=tests/e2e/faults/lib.sh
. "$here/lib.sh"

trap finish EXIT

head -c 32 /dev/urandom >"$state/ticket.key"
chmod 600 "$state/ticket.key"

router_workers=()
worker() { # NAME ROLE
  local control kv admin
  pick_port control kv admin
  router_workers+=(--worker "127.0.0.1:$control")
  launch "$1" 127.0.0.1 "$admin" "$bin/penstock-worker" --model "$model" --model-name fake --executor "$executor" \
    --role "$2" --control-port "$control" --kv-port "$kv" --admin-port "$admin" \
    --kv-lease ${lease_ms}ms --kv-pool 64MiB --prefill-chunk-tokens 64 "${steps[@]}" \
    --ticket-key-file "$state/ticket.key"
}

worker p0 prefill
worker p1 prefill
worker d0 decode
worker d1 decode
workers=(p0 p1 d0 d1)
pick_port router_port router_admin
launch router 127.0.0.1 "$router_admin" "$bin/penstock-router" --port "$router_port" --admin-port "$router_admin" \
  "${router_workers[@]}" \
  --ticket-key-file "$state/ticket.key" --limits-no-progress-decode 3s --limits-no-progress-prefill 3s
for name in "${workers[@]}" router; do until_true 60 "$name is not ready" ready_code "$name"; done
until_true 30 'the router does not see all workers' workers_connected 4

# whoever of the given workers works on the request
serving() {
  local name
  for name in "$@"; do
    if is_running "$name" || [ "$(metric "$name" penstock_worker_kv_blocks_used)" -gt 0 ]; then
      printf '%s' "$name"
      return
    fi
  done
  return 1
}
is_served() { serving "$@" >/dev/null; }
is_transferring() { local name; for name in p0 p1; do ! is_pinned "$name" || return 0; done; return 1; }

check_survivors() { # [DEAD]
  local name
  for name in "${workers[@]}" router; do
    [ "$name" != "${1:-}" ] || continue
    kill -0 "${pid_of[$name]}" 2>/dev/null || fail "$name died, and nobody killed it"
    [ "$name" = router ] || until_true $((lease_ms / 1000 + 2)) "blocks of $name are not free" is_empty "$name"
  done
}

scenario() { # SIGNAL VICTIM PHASE
  local tag="$1-$2-$3" victim candidates asking reoffers
  reoffers=$(metric router penstock_router_reoffers_total)
  if [ "$2" = prefill-worker ]; then candidates=(p0 p1); else candidates=(d0 d1); fi
  : >"$state/$tag"
  ask "$tag" "$state/$tag" &
  asking=$!
  case $3 in
    prefill) until_true 30 "$tag: no prefill began" is_served p0 p1 ;;
    transfer) until_true 30 "$tag: no transfer began" is_transferring ;;
    decode) until_true 30 "$tag: no tokens came" has_chunks "$state/$tag" 6 ;;
  esac
  # A decode worker holds blocks once the first chunk has been offered.
  if [ "$2" = decode-worker ]; then until_true 30 "$tag: no decode worker holds it" is_served "${candidates[@]}"; fi
  victim=$(serving "${candidates[@]}") || victim=${candidates[0]}
  kill "-$1" "${pid_of[$victim]}"
  wait $asking || fail "$tag: the stream broke ($?): $(tail -c 600 "$state/$tag")"
  # The prefill worker still had the KV: it was offered to the other decode worker, not computed again.
  if [ "$tag" = KILL-decode-worker-transfer ]; then
    [ "$(metric router penstock_router_reoffers_total)" -gt "$reoffers" ] || fail "$tag: the KV was not offered again"
  fi
  if [ "$1" = KILL ]; then
    { wait "${pid_of[$victim]}" || true; } 2>/dev/null
    check_survivors "$victim"
    relaunch "$victim"
    until_true 60 "$victim did not come back" ready_code "$victim"
  else
    kill -CONT "${pid_of[$victim]}"
  fi
  until_true 15 "the router does not see all workers again" workers_connected 4
  check_survivors
  ask "$tag" "$state/$tag.again"
  [ "$(text_of "$state/$tag")" = "$(text_of "$state/$tag.again")" ] ||
    fail "$tag: the stream differs: $(text_of "$state/$tag") / $(text_of "$state/$tag.again")"
  [[ $(text_of "$state/$tag") == *' | length done' ]] || fail "$tag: the stream did not end well: $(tail -c 300 "$state/$tag")"
  printf 'passed: %s (%s)\n' "$tag" "$victim"
}

ask warm-up "$state/warm-up"
[[ $(text_of "$state/warm-up") == *' | length done' ]] || fail "the fault-free stream is wrong: $(tail -c 300 "$state/warm-up")"
check_survivors
rss_before=$(rss_kb router)
if [ "$executor" = cpu ]; then
  scenario KILL prefill-worker transfer
  scenario KILL decode-worker decode
  scenario STOP decode-worker decode
else
  for signal in KILL STOP; do
    for victim in prefill-worker decode-worker; do
      for phase in prefill transfer decode; do scenario $signal $victim $phase; done
    done
  done
fi
rss_after=$(rss_kb router)
[ $((rss_after - rss_before)) -lt 30000 ] || fail "the router grew from $rss_before to $rss_after kB"
echo "fault matrix: passed (router RSS $rss_before to $rss_after kB)"
