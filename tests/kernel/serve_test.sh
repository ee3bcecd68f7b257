#!/usr/bin/env bash
# A router and a worker that serves from the GPU, as processes: a streamed chat completion, greedy answers that repeat
# and are the same however steps are started, refusals in one sentence, an orderly end. Then a prefill and a decode
# worker that share the GPU: the same answers, by device copies, through host memory, and when the prefill worker is killed.
# Usage: serve_test.sh BIN_FOLDER MODEL. The model is any that the GPU executor runs; PENSTOCK_EXPECT is a text that the
# answer to "What is the capital of France?" must hold, if it is set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:?usage: serve_test.sh BIN_FOLDER MODEL} model=${2:?usage: serve_test.sh BIN_FOLDER MODEL}
processes=$here/../../deploy/processes.sh
[ -e "$processes" ] || processes=$here/processes.sh # unpacked
state=$(mktemp -d)
# shellcheck source=deploy/processes.sh
. "$processes"

finish() {
  local code=$?
  if [ $code != 0 ]; then
    for log in "$state"/*.log; do
      printf -- '--- %s\n' "$log"
      tail -n 20 "$log"
    done
  fi
  # shellcheck disable=SC2046 # names have no spaces
  stop_all 15 $(names) || code=1
  rm -rf "$state"
  exit $code
}
trap finish EXIT

# value_of NAME KEY: from the log of a process that is coming up; waits for it.
value_of() {
  local waited=0 value
  while :; do
    value=$(sed -n "s/.*[ {]\"\{0,1\}$2\"\{0,1\}[=:]\"\{0,1\}\([0-9]*\).*/\1/p" "$state/$1.log" | head -n 1)
    [ -z "$value" ] || break
    pid_of "$1" >/dev/null || fail "$1 ended at once"
    [ $waited -lt 1200 ] || fail "$1 does not say its $2"
    sleep 0.1
    waited=$((waited + 1))
  done
  echo "$value"
}

worker_options=(--model "$model" --model-name tested --executor cuda --kv-transfer off --kv-pool 256MiB
  --context-tokens 2048 --control-port 0 --admin-port 0)

serve() {
  launch worker "$bin/penstock-worker" "${worker_options[@]}" "$@"
  local control
  control=$(value_of worker control_port)
  launch router "$bin/penstock-router" --port 0 --admin-port 0 --worker "127.0.0.1:$control"
  port=$(value_of router port)
}

question='What is the capital of France?'

# ask MAX_TOKENS TEMPERATURE: a streamed chat completion of the question; the events' lines.
ask() {
  local body answer
  answer=$(mktemp "$state/answer.XXXXXX")
  body='{"model":"tested","stream":true,"stream_options":{"include_usage":true},"seed":7,"max_tokens":'$1',"temperature":'$2
  body+=',"messages":[{"role":"user","content":"'$question'"}]}'
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n' >&3
  printf 'Content-Length: %d\r\nConnection: close\r\n\r\n%s' "${#body}" "$body" >&3
  timeout 60 cat <&3 | tr -d '\r' >"$answer"
  exec 3>&- 3<&-
  mv "$answer" "$state/answer"
  grep '^data: ' "$state/answer" || fail "no events in: $(head -c 600 "$state/answer")"
}
text_of() { sed -n 's/.*"delta":{[^}]*"content":"\(\([^"\\]\|\\.\)*\)".*/\1/p' | tr -d '\n'; }

wait_served() {
  local waited=0
  until (ask 1 0) >/dev/null 2>&1 && grep -q '^data: \[DONE\]' "$state/answer"; do
    [ $waited -lt 100 ] || fail "nothing is served: $(head -c 600 "$state/answer" 2>&1)"
    sleep 0.1
    waited=$((waited + 1))
  done
}

refused() { # TEXT OPTION...
  local text=$1 code=0
  shift
  timeout 120 "$bin/penstock-worker" "${worker_options[@]}" "$@" >"$state/refusal" 2>&1 || code=$?
  if [ $code = 0 ] || [ $code -ge 124 ]; then fail "exit code $code instead of a refusal with '$text'"; fi
  grep -q -- "$text" "$state/refusal" || fail "not refused with '$text' but: $(cat "$state/refusal")"
}

# Some 1,400 characters, in chunks of 32 tokens: the transfer is under way while the prompt is computed.
long_question=$(printf 'Line %d of a long letter to a friend. ' {1..38})
worker_options+=(--prefill-chunk-tokens 32)

echo '--- refusals'
refused 'does not fit in the GPU' --kv-pool 4TiB
grep -q 'KV pool .*4096.00 GiB' "$state/refusal" || fail "no budget: $(cat "$state/refusal")"
refused "KV that several GPUs share can't be transferred yet" --kv-transfer auto --tensor-parallel 2

echo '--- graphs'
serve
wait_served
grep -q 'GPU memory' "$state/worker.log" || fail 'the log has no memory budget'
events=$(ask 48 0)
greedy=$(text_of <<<"$events")
echo "answer: $greedy"
grep -q '"finish_reason":"\(stop\|length\)"' <<<"$events" || fail "no finish reason in $events"
grep -q '"completion_tokens":[1-9]' <<<"$events" || fail "no usage in $events"
tail -n 1 <<<"$events" | grep '\[DONE\]' >/dev/null || fail 'the stream has no end'
[ -z "${PENSTOCK_EXPECT:-}" ] || grep -q -- "$PENSTOCK_EXPECT" <<<"$greedy" || fail "the answer lacks $PENSTOCK_EXPECT"
[ "$(ask 48 0 | text_of)" = "$greedy" ] || fail 'a greedy answer does not repeat'
drawn=$(ask 48 0.8 | text_of)
[ "$(ask 48 0.8 | text_of)" = "$drawn" ] || fail 'an answer with a seed does not repeat'
pids=()
for _ in 1 2 3 4; do
  (ask 64 0 >/dev/null) &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
question=$long_question
long_greedy=$(ask 48 0 | text_of)
worker=$(pid_of worker)
stop_all 15 router worker
code=0
wait "$worker" || code=$?
[ $code = 0 ] || fail "the worker ended with $code"
grep -q 'drained' "$state/worker.log" || fail 'the worker did not drain'

question='What is the capital of France?'
echo '--- kernels one by one, in order'
serve --cuda-launch ordered
wait_served
[ "$(ask 48 0 | text_of)" = "$greedy" ] || fail 'tokens depend on how steps are started'
[ "$(ask 48 0.8 | text_of)" = "$drawn" ] || fail 'drawn tokens depend on how steps are started'
stop_all 15 router worker

head -c 32 /dev/urandom >"$state/ticket.key"
chmod 600 "$state/ticket.key"

# split KV_TRANSFER: a prefill worker, a decode worker, and a router that always uses both.
split() {
  local name workers=() options=("${worker_options[@]}" --kv-transfer "$1" --kv-port 0 --ticket-key-file "$state/ticket.key")
  launch prefill "$bin/penstock-worker" "${options[@]}" --role prefill
  launch decode "$bin/penstock-worker" "${options[@]}" --role decode
  for name in prefill decode; do workers+=(--worker "127.0.0.1:$(value_of "$name" control_port)"); done
  launch router "$bin/penstock-router" --port 0 --admin-port 0 --split-tokens-min 0 "${workers[@]}" \
    --ticket-key-file "$state/ticket.key"
  port=$(value_of router port)
  question='hello'
  wait_served
  question=$long_question
}

# lane_bytes LANE: what the decode worker has read that way.
lane_bytes() {
  exec 4<>"/dev/tcp/127.0.0.1/$(value_of decode admin_port)"
  printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&4
  timeout 5 cat <&4 | sed -n "s/^penstock_worker_transfer_lane_bytes_total{lane=\"$1\"} \([0-9]*\).*/\1/p"
  exec 4>&- 4<&-
}
went_by() { # LANE
  [ "$(lane_bytes "$1")" -gt 100000 ] || fail "KV did not go by $1: $(grep 'kv lane' "$state/decode.log")"
  grep 'kv lane' "$state/decode.log" | head -n 1
}

echo '--- prefill and decode, device copies'
split auto
grep 'kv transfer ready' "$state/decode.log" | grep 'no GPUDirect' >/dev/null || fail 'the log does not say how KV moves'
[ "$(ask 48 0 | text_of)" = "$long_greedy" ] || fail 'tokens depend on where the prompt is computed'
went_by 'device copy'

echo '--- the prefill worker is killed in the middle of a transfer'
question="Another $long_question"
before=$(lane_bytes 'device copy')
(ask 48 0 | text_of >"$state/interrupted") &
asking=$!
waited=0
until [ "$(lane_bytes 'device copy')" -gt "$before" ]; do
  [ $waited -lt 200 ] || fail 'no transfer began'
  waited=$((waited + 1))
done
kill -KILL "$(pid_of prefill)"
wait $asking || fail 'the stream broke'
[ -n "$(cat "$state/interrupted")" ] || fail 'no text came'
stop_all 15 router decode
# What is cached would be computed in other pieces, which round differently.
question='hello'
serve
wait_served
question="Another $long_question"
alone=$(ask 48 0 | text_of)
[ "$alone" = "$(cat "$state/interrupted")" ] || fail "not '$alone' after the prefill worker's death: $(cat "$state/interrupted")"
stop_all 15 router worker

echo '--- prefill and decode, through host memory'
split tcp
[ "$(ask 48 0 | text_of)" = "$long_greedy" ] || fail 'tokens depend on how KV is transferred'
went_by messages
stop_all 15 router prefill decode

echo 'serving from the GPU works'
