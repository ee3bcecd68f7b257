# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 400 s. Not in CI: a node is stopped like a machine that loses power; its workers are replaced elsewhere.
. "$(dirname "$0")/../lib.sh"
at_rest
service chat 2 2 '  x: y' >/dev/null
start_load chat
stop_node 2
eventually 240 has_ready chat decode 2
eventually 120 is_ready chat
sleep 5
kill -TERM "$load_pid"
wait "$load_pid" || true
trap - EXIT
cat "$state/load.json"
# Streams through the lost node are the router's to move; only a router on that node may cost requests.
if ! k get pods -l app.kubernetes.io/component=router -o 'jsonpath={.items[*].spec.nodeName}' | grep -q node-2; then
  equals "$(jq -r .failed "$state/load.json")" 0 "failed requests"
fi
start_kubelet 2
eventually 60 node_is_ready 2
