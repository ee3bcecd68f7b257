# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. A worker's process is killed, then a pod is deleted without grace, under load: streams move, the group comes back.
. "$(dirname "$0")/../lib.sh"
at_rest
start_load chat
step "kill -9 of a decode worker's process"
pod=$(k get pods -l penstock.dev/service=chat,penstock.dev/role=decode -o 'jsonpath={.items[0].metadata.name}')
uid=$(k get pod "$pod" -o 'jsonpath={.metadata.uid}')
pids=()
for process in /proc/[0-9]*; do
  if grep -q "pod$uid" "$process/cgroup" 2>/dev/null && grep -q penstock-worker "$process/comm" 2>/dev/null; then pids+=("${process#/proc/}"); fi
done
[ ${#pids[@]} -gt 0 ] || fail "no worker process of pod $pod"
kill -KILL "${pids[@]}"
sleep 3
eventually 90 is_ready chat
step "a pod deleted at once"
pod=$(k get pods -l penstock.dev/service=chat,penstock.dev/role=decode -o 'jsonpath={.items[1].metadata.name}')
k delete pod "$pod" --grace-period=0 --force
eventually 90 is_ready chat
eventually 60 has_ready chat decode 2
sleep 3
end_load
