#!/usr/bin/env bash
# Tools and thoughts with the official OpenAI and Anthropic clients, against a router whose workers are scripted.
# Usage: tools_test.sh SCRIPTED_ROUTER
set -euo pipefail
cd "$(dirname "$0")/../.."
router=${1:?usage: tools_test.sh SCRIPTED_ROUTER}
clients=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/clients

# It ends when its input does, whatever way this script ends.
coproc ROUTER { exec "$router"; }
read -r -t 30 port <&"${ROUTER[0]}"
export PENSTOCK_URL=http://127.0.0.1:$port
timeout 120 "$clients/python/bin/python" -m unittest -v tests/e2e/tools_client.py
NODE_PATH=$clients/node/node_modules timeout 120 node tests/e2e/tools_client.cjs
