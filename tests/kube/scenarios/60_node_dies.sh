# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 600 s. Not in CI: a node without the router is stopped like a machine that loses power: its workers are replaced
# elsewhere, their streams go on; the node comes back and is used again.
. "$(dirname "$0")/../lib.sh"
at_rest
nodes_of() { k get pods -l "penstock.dev/service=chat,penstock.dev/role-type$1" -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}'; }
victim=''
for node in 1 2; do # node-0 is the control plane's machine
  if ! nodes_of '=router' | grep -x "node-$node" >/dev/null && nodes_of '!=router' | grep -x "node-$node" >/dev/null; then victim=$node; fi
done
if [ -z "$victim" ]; then # no worker where no router is: one has to move there
  victim=$((1 + $(nodes_of '=router' | grep -cx node-1)))
  kubectl cordon node-0 node-$((3 - victim))
  k delete "$(k get pods -l penstock.dev/service=chat,penstock.dev/role=decode -o name | head -n 1)"
  moved() { nodes_of '!=router' | grep -x "node-$victim" >/dev/null; }
  eventually 120 moved
  kubectl uncordon node-0 node-$((3 - victim))
  at_rest
fi
k get pods -o wide
start_load chat
step "node-$victim dies"
trap 'kill "$load_pid" 2>/dev/null || true; start_kubelet "$victim"' EXIT
stop_node "$victim"
lost() { ! node_is_ready "$victim"; }
eventually 120 lost
replaced() {
  has_ready chat decode 2 && has_ready chat prefill 2 && is_ready chat &&
    ! k get wg -l penstock.dev/service=chat -o 'jsonpath={range .items[*]}{.status.leaderAddress}{"\n"}{end}' | grep "^10\.232\.$victim\." >/dev/null
}
eventually 240 replaced
k get wg,pods -o wide
sleep 5
end_load
step "node-$victim is back"
start_kubelet "$victim"
trap - EXIT
eventually 120 node_is_ready "$victim"
at_rest
