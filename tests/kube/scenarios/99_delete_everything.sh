# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 180 s. Services deleted, chart uninstalled: nothing is left.
. "$(dirname "$0")/../lib.sh"
k delete llm --all --timeout=60s
left() {
  [ -z "$(k get pods,wg,rolescalers,services,deployments,poddisruptionbudgets,networkpolicies,controllerrevisions,modelcaches,modeladapters,secrets,roles,rolebindings,podgroups.scheduling.k8s.io \
    -o name | grep -v service/kubernetes || true)" ]
}
eventually 90 left
export KUBECONFIG=$state/kubeconfig/admin
"$programs/helm" uninstall penstock -n penstock-system --wait --timeout 60s
equals "$(kubectl get clusterroles,clusterrolebindings -o name | grep penstock || true)" "" "cluster roles"
kubectl delete crd -l app.kubernetes.io/part-of=penstock
equals "$(kubectl get crd -o name | grep penstock || true)" "" "definitions"
