# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 300 s. Not in CI: a quota without room for the pods: a condition says so, the operator asks ever more rarely, and goes on when
# the quota grows.
. "$(dirname "$0")/../lib.sh"
namespace=small
kubectl create namespace "$namespace"
k create quota pods --hard=pods=2
unified tight 3 | k apply -f -
eventually 90 condition_is llm/tight Scheduled False QuotaExceeded
condition_of llm/tight Scheduled | grep -F 'exceeded quota'
event() { k get events.events.k8s.io -o 'jsonpath={range .items[*]}{.reason} {.regarding.kind}: {.note}{"\n"}{end}' | grep '^QuotaExceeded LLMService'; }
eventually 30 event
step "no hot loop"
line=$(audit_line)
sleep 30
refused=$(refused_since "$line")
echo "$refused attempts in 30 s"
[ "$refused" -le 30 ] || fail "$refused attempts in 30 s"
step "the quota grows"
k patch quota pods --type=merge -p '{"spec": {"hard": {"pods": "10"}}}'
eventually 240 is_ready tight
condition_is llm/tight Scheduled True Bound
kubectl delete namespace "$namespace" --timeout=90s
