# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 300 s. The chart is installed, helm's own test passes, a service with 1 router, 2 prefill and 2 decode workers answers.
. "$(dirname "$0")/../lib.sh"
export KUBECONFIG=$state/kubeconfig/admin
"$root/deploy/cluster/install"
step "helm test"
"$programs/helm" test penstock -n penstock-system --timeout 60s
step "a service"
kubectl get namespace "$namespace" 2>/dev/null || kubectl create namespace "$namespace"
service chat 2 2 | kubectl apply -f -
eventually 120 is_ready chat
k get llm,wg,pods -o wide
for _ in 1 2 3; do equals "$(ask chat)" "$(ask chat)" "two answers to one question"; done
ask chat | grep Paris >/dev/null
step "workers may not talk to the API server"
pod=$(k get pods -l penstock.dev/role=decode -o 'jsonpath={.items[0].metadata.name}')
equals "$(k get pod "$pod" -o 'jsonpath={.spec.automountServiceAccountToken}')" false "the token of a worker pod"
