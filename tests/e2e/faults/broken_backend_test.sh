#!/usr/bin/env bash
# A backend that fails, and one that stops answering: its worker ends with exit code 1 and says why, and its request goes
# on elsewhere with the text of a fault-free run. Usage: broken_backend_test.sh BUILD_FOLDER. PENSTOCK_MODEL: whose
# tokenizer is used.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
bin=${1:?usage: broken_backend_test.sh BUILD_FOLDER}/bin
model=${PENSTOCK_MODEL:-$("$root/deploy/dependencies" --model | tail -n 1)}
state=$(mktemp -d)
# shellcheck disable=SC2034 # lib.sh uses them
prompt_words=20 output_tokens=60 router_port='' router_admin=''
# shellcheck disable=SC2034
declare -A via_of=()
# shellcheck source=tests/e2e/faults/lib.sh
. "$here/lib.sh"
trap finish EXIT

declare -A control_of=()
pick_port router_port router_admin
workers=() # as the router is told
for name in sound failing0 failing1 hanging0 hanging1; do
  pick_port "control_of[$name]"
  workers+=(--worker "127.0.0.1:${control_of[$name]}")
done
launch router 127.0.0.1 "$router_admin" "$bin/penstock-router" --port "$router_port" --admin-port "$router_admin" \
  "${workers[@]}"

worker() { # NAME [OPTION...]
  local name=$1 admin
  shift
  pick_port admin
  launch "$name" 127.0.0.1 "$admin" "$bin/penstock-worker" --model "$model" --model-name fake --executor fake \
    --control-port "${control_of[$name]}" --kv-transfer off --admin-port "$admin" --kv-pool 64MiB \
    --fake-step-time 30ms --step-limit 1s "$@"
}
end_worker() {
  kill -KILL "${pid_of[$1]}"
  { wait "${pid_of[$1]}" || true; } 2>/dev/null
}
has_ended() { ! kill -0 "${pid_of[$1]}" 2>/dev/null; }
one_has_ended() { has_ended "$1" || has_ended "$2"; }

# Two workers that break after more steps than half of the stream needs: one does, the other one ends the stream.
scenario() { # NAME OPTION WORDS_OF_THE_LOG
  local code=0 victim=${1}0 survivor=${1}1
  worker "$victim" "$2" 40
  worker "$survivor" "$2" 40
  until_true 60 'the router does not see both workers' workers_connected 2
  ask "$1" "$state/$1.answer" || fail "$1: the stream broke: $(tail -c 600 "$state/$1.answer")"
  until_true 10 "$1: no worker ended" one_has_ended "$victim" "$survivor"
  if ! has_ended "$victim"; then victim=${1}1 survivor=${1}0; fi
  if has_ended "$survivor"; then fail "$1: both workers ended"; fi
  wait "${pid_of[$victim]}" || code=$?
  [ "$code" = 1 ] || fail "$victim ended with exit code $code"
  grep -q "$3" "$state/$victim.log" || fail "$victim did not say: $3"
  [ "$(text_of "$state/$1.answer")" = "$(text_of "$state/$1.sound")" ] ||
    fail "$1: the stream differs: $(text_of "$state/$1.answer") / $(text_of "$state/$1.sound")"
  end_worker "$survivor"
  until_true 30 'the router still sees a worker' workers_connected 0
  printf 'passed: %s\n' "$1"
}

worker sound
until_true 60 'the router does not see the worker' workers_connected 1
until_true 60 'the router is not ready' ready_code router
for name in failing hanging; do
  ask "$name" "$state/$name.sound"
  [[ $(text_of "$state/$name.sound") == *' | length done' ]] || fail "$name: $(tail -c 300 "$state/$name.sound")"
done
end_worker sound
until_true 30 'the router still sees a worker' workers_connected 0
scenario failing --fake-fail-after-steps 'the backend broke'
scenario hanging --fake-hang-after-steps 'a step takes too long'
