#!/usr/bin/env bash
# End to end: deploy/local/up with the default model, then the official OpenAI clients against it, then deploy/local/down,
# after which nothing may be left. Usage: local_test.sh BUILD_FOLDER (what tests/run built).
set -euo pipefail
cd "$(dirname "$0")/../.."
export PENSTOCK_BUILD=${1:?usage: local_test.sh BUILD_FOLDER}
case $PENSTOCK_BUILD in /*) ;; *) PENSTOCK_BUILD=$PWD/$PENSTOCK_BUILD ;; esac
PENSTOCK_LOCAL_STATE=$(mktemp -d)
export PENSTOCK_LOCAL_STATE
clients=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/clients
model=${PENSTOCK_MODEL:-$(deploy/dependencies --model | tail -n 1)}
port=21800

finish() {
  local code=$?
  if [ $code != 0 ]; then
    for log in "$PENSTOCK_LOCAL_STATE"/*.log; do
      printf -- '--- %s\n' "$log"
      tail -n 30 "$log"
    done
  fi
  deploy/local/down || code=1
  rm -rf "$PENSTOCK_LOCAL_STATE"
  exit $code
}
trap finish EXIT

up() { deploy/local/up --no-build --router-port $port; }

up
deploy/local/status
echo '--- again: nothing may restart'
before=$(cat "$PENSTOCK_LOCAL_STATE"/*.pid)
up >/dev/null
[ "$before" = "$(cat "$PENSTOCK_LOCAL_STATE"/*.pid)" ] || { echo 'up is not idempotent'; exit 1; }

echo '--- openai for Python'
export PENSTOCK_URL=http://127.0.0.1:$port PENSTOCK_ADMIN_URL=http://127.0.0.1:$((port + 1180))
"$clients/python/bin/python" -m unittest -v tests/e2e/openai_client.py

echo '--- openai for Node'
NODE_PATH=$clients/node/node_modules node tests/e2e/openai_client.cjs

echo '--- a decode worker dies under a stream'
"$clients/python/bin/python" -m unittest -v tests/e2e/migration.py
up >/dev/null # brings the dead worker back
deploy/local/status

echo '--- a used port is one sentence'
if "$PENSTOCK_BUILD/bin/penstock-router" --port $port --admin-port 0 --worker 127.0.0.1:1 2>"$PENSTOCK_LOCAL_STATE/used"; then
  echo 'a second router on the same port did not fail'
  exit 1
fi
grep -q "$port" "$PENSTOCK_LOCAL_STATE/used"
[ "$(wc -l <"$PENSTOCK_LOCAL_STATE/used")" -le 2 ]

echo '--- a corrupt model is one sentence'
head -c 1000000 "$model" >"$PENSTOCK_LOCAL_STATE/cut.gguf"
if "$PENSTOCK_BUILD/bin/penstock-worker" --model "$PENSTOCK_LOCAL_STATE/cut.gguf" --control-port 0 --admin-port 0 --kv-port 0 \
  2>"$PENSTOCK_LOCAL_STATE/cut"; then
  echo 'a truncated model did not fail'
  exit 1
fi
grep -q 'cut.gguf' "$PENSTOCK_LOCAL_STATE/cut"

echo '--- down'
deploy/local/down
for file in "$PENSTOCK_LOCAL_STATE"/*.pid; do
  [ ! -e "$file" ] || { echo "$file is left"; exit 1; }
done
echo 'end to end: passed'
