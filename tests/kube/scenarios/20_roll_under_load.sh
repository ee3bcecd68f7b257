# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 300 s. A new revision of both roles replaces the old one under streaming load: no request fails, no role goes to zero.
. "$(dirname "$0")/../lib.sh"
at_rest
before=$(k get llm chat -o 'jsonpath={.status.currentRevision}')
start_load chat
echo $(($(pool) + 8)) >"$state/pool"
service chat 2 2 | kubectl apply -f -
rolled() { [ "$(k get llm chat -o 'jsonpath={.status.currentRevision}')" != "$before" ] && is_ready chat; }
for _ in $(seq 150); do
  for role in prefill decode; do
    [ "$(ready_of chat "$role")" -ge 1 ] || fail "$role went to $(ready_of chat "$role") while it rolled"
  done
  ! rolled || break
  sleep 1
done
rolled || fail "the roll does not end"
sleep 5
end_load
for revision in $(k get pods -l penstock.dev/service=chat,penstock.dev/role=decode -o 'jsonpath={.items[*].metadata.labels.penstock\.dev/revision}'); do
  echo "decode pod of revision $revision"
done
