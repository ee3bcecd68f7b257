# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. A role with external scaling: what a HorizontalPodAutoscaler writes to the scale subresource is what runs.
. "$(dirname "$0")/../lib.sh"
service auto 1 1 | sed '/name: decode/,/replicas/s/replicas: 1/replicas: 1\n    scaling: {mode: External, min: 1, max: 3}/' | kubectl apply -f -
eventually 120 is_ready auto
scaler=$(k get rolescalers -o name | grep auto | grep decode)
k scale "$scaler" --replicas=3
eventually 90 has_ready auto decode 3
reports() { [ "$(k get "$scaler" -o 'jsonpath={.status.replicas}')" = "$1" ]; }
eventually 10 reports 3
k get "$scaler" -o 'jsonpath={.status.selector}' | grep penstock.dev/ >/dev/null
k scale "$scaler" --replicas=1
eventually 90 has_ready auto decode 1
step "the service's own count is only a seed"
service auto 1 2 | sed '/name: decode/,/replicas/s/replicas: 2/replicas: 2\n    scaling: {mode: External, min: 1, max: 3}/' | kubectl apply -f -
sleep 5
equals "$(k get "$scaler" -o 'jsonpath={.spec.replicas}')" 1 "the scaler's count"
k delete llm auto
