#!/usr/bin/env bash
# A router and a worker that serves from the GPU, as processes: a streamed chat completion, greedy answers that repeat
# and are the same however steps are started, refusals in one sentence, an orderly end.
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

# ask MAX_TOKENS TEMPERATURE: a streamed chat completion; the events' lines.
ask() {
  local body answer
  answer=$(mktemp "$state/answer.XXXXXX")
  body='{"model":"tested","stream":true,"stream_options":{"include_usage":true},"seed":7,"max_tokens":'$1',"temperature":'$2
  body+=',"messages":[{"role":"user","content":"What is the capital of France?"}]}'
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

echo '--- refusals'
refused 'does not fit in the GPU' --kv-pool 4TiB
grep -q 'KV pool .*4096.00 GiB' "$state/refusal" || fail "no budget: $(cat "$state/refusal")"
refused "KV can't be transferred yet" --kv-transfer auto

echo '--- graphs'
serve
wait_served
grep -q 'GPU memory' "$state/worker.log" || fail 'the log has no memory budget'
events=$(ask 48 0)
greedy=$(text_of <<<"$events")
echo "answer: $greedy"
grep -q '"finish_reason":"\(stop\|length\)"' <<<"$events" || fail "no finish reason in $events"
grep -q '"completion_tokens":[1-9]' <<<"$events" || fail "no usage in $events"
tail -n 1 <<<"$events" | grep -q '\[DONE\]' || fail 'the stream has no end'
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
worker=$(pid_of worker)
stop_all 15 router worker
code=0
wait "$worker" || code=$?
[ $code = 0 ] || fail "the worker ended with $code"
grep -q 'drained' "$state/worker.log" || fail 'the worker did not drain'

echo '--- kernels one by one, in order'
serve --cuda-launch ordered
wait_served
[ "$(ask 48 0 | text_of)" = "$greedy" ] || fail 'tokens depend on how steps are started'
[ "$(ask 48 0.8 | text_of)" = "$drawn" ] || fail 'drawn tokens depend on how steps are started'
echo 'serving from the GPU works'
