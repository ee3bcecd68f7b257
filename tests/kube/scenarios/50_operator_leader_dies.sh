# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 180 s. Not in CI: the leading operator is killed: the other leads within 15 s. It is asked to end: within 2 s.
. "$(dirname "$0")/../lib.sh"
holder() { kubectl -n penstock-system get lease penstock -o 'jsonpath={.spec.holderIdentity}'; }
leader_pod() { holder | sed 's/_.*//'; }
changed() { [ -n "$(holder)" ] && [ "$(holder)" != "$1" ]; }
step "crash"
old=$(holder) pod=$(leader_pod)
kubectl -n penstock-system delete pod "$pod" --grace-period=0 --force
started=$(date +%s%N)
eventually 15 changed "$old"
printf 'crash: %d ms\n' $((($(date +%s%N) - started) / 1000000))
eventually 60 kubectl -n penstock-system wait deployment/penstock --for=condition=Available --timeout=1s
step "graceful"
old=$(holder) pod=$(leader_pod)
started=$(date +%s%N)
kubectl -n penstock-system delete pod "$pod" --wait=false
eventually 10 changed "$old"
printf 'graceful: %d ms\n' $((($(date +%s%N) - started) / 1000000))
step "it works on"
service chat 2 3 | kubectl apply -f -
eventually 90 has_ready chat decode 3
service chat 2 2 | kubectl apply -f -
eventually 90 has_ready chat decode 2
