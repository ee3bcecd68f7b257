# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. Not in CI: the API server is away for 60 s: serving goes on, with what the router knew last; afterwards the operator works.
. "$(dirname "$0")/../lib.sh"
at_rest
start_load chat
stop_all 10 kube-apiserver
sleep 60
start_apiserver
sleep 5
end_load
eventually 60 is_ready chat
service chat 2 3 | kubectl apply -f -
eventually 120 has_ready chat decode 3
service chat 2 2 | kubectl apply -f -
eventually 120 has_ready chat decode 2
