# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. Nothing changes, so nothing is written; an upgrade of the operator with unchanged specs writes nothing either.
. "$(dirname "$0")/../lib.sh"
at_rest
sleep 10
line=$(audit_line)
sleep "${PENSTOCK_STEADY_SECONDS:-30}"
equals "$(writes_since "$line")" "" "writes at rest"
step "upgrade of the operator"
pods=$(k get pods -l penstock.dev/service=chat -o 'jsonpath={.items[*].metadata.uid}')
export KUBECONFIG=$state/kubeconfig/admin
line=$(audit_line)
"$root/deploy/cluster/install" --set podAnnotations.upgraded=yes >/dev/null
sleep 15
equals "$(writes_since "$line" | grep -v 'customresourcedefinitions' || true)" "" "writes after an upgrade"
equals "$(k get pods -l penstock.dev/service=chat -o 'jsonpath={.items[*].metadata.uid}')" "$pods" "pods after an upgrade"
