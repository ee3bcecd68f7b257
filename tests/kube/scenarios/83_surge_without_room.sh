# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 400 s. Not in CI: a roll whose surge fits on no node: it is said, and after surgeFallbackSeconds an old group makes room.
. "$(dirname "$0")/../lib.sh"
for node in 0 1; do
  kubectl patch node "node-$node" --subresource=status --type=merge \
    -p '{"status": {"capacity": {"example.com/slot": "1"}, "allocatable": {"example.com/slot": "1"}}}'
done
slot='resources: {limits: {example.com/slot: 1}}'
rollout='  rollout: {maxSurge: 1, maxUnavailable: 0, surgeFallbackSeconds: 10}'
without_requests() { sed '/^          resources: {requests/d'; }
unified surge 2 "$rollout" "$slot" | without_requests | kubectl apply -f -
eventually 180 is_ready surge
before=$(k get llm surge -o 'jsonpath={.status.currentRevision}')
unified surge 2 "$rollout" "$slot" | without_requests | sed 's/kv-pool: [0-9]*MiB/kv-pool: 96MiB/' | kubectl apply -f -
eventually 60 condition_is llm/surge Scheduled False Unschedulable
eventually 60 condition_is llm/surge Progressing True SurgeUnschedulable
condition_of llm/surge Progressing
rolled() { [ "$(k get llm surge -o 'jsonpath={.status.currentRevision}')" != "$before" ] && is_ready surge; }
eventually 240 rolled
k delete llm surge
