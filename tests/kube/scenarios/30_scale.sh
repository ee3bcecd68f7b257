# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. Up by one and down by two under load, without a failed request.
. "$(dirname "$0")/../lib.sh"
at_rest
start_load chat
service chat 2 3 | kubectl apply -f -
eventually 90 has_ready chat decode 3
sleep 5
service chat 1 1 | kubectl apply -f -
eventually 90 pods_are chat decode 1
eventually 60 pods_are chat prefill 1
sleep 3
end_load
service chat 2 2 | kubectl apply -f -
eventually 90 has_ready chat decode 2
eventually 90 has_ready chat prefill 2
