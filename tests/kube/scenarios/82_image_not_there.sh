# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 300 s. Not in CI: an image that no registry has: the service says which, and runs when the template names one that is there.
. "$(dirname "$0")/../lib.sh"
unified image 1 "" "image: localhost/penstock-worker:absent" | kubectl apply -f -
pulls_nothing() { condition_is llm/image Ready False '.*' && condition_of llm/image Ready | grep -E 'ErrImagePull|ImagePullBackOff'; }
eventually 120 pulls_nothing
condition_of llm/image Ready | grep -F 'penstock-worker:absent'
step "no hot loop"
line=$(audit_line)
sleep 30
writes_since "$line" | sort | uniq -c
[ "$(writes_since "$line" | wc -l)" -le 10 ] || fail "too many writes in 30 s"
step "an image that is there"
unified image 1 | kubectl apply -f -
eventually 180 is_ready image
k delete llm image
