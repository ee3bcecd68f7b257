# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 500 s. Not in CI: router and workers speak TLS with each other by a certificate from a Secret; with an expired one the
# service says that it doesn't serve, and serves again when the Secret is renewed, with the same pods.
. "$(dirname "$0")/../lib.sh"
work=$(mktemp -d "$state/tls.XXXXXX")
trap 'rm -rf "$work"' EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/ca.key" -subj /CN=fabric -days 1 \
  -out "$work/ca.crt" 2>/dev/null
# secret DAYS: a certificate that is valid for so long; -1 has expired.
secret() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$work/tls.key" -subj /CN=sealed 2>/dev/null |
    openssl x509 -req -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days "$1" -out "$work/tls.crt" \
      -extfile <(printf 'extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=DNS:penstock-worker\n') 2>/dev/null
  k create secret generic fabric --from-file="$work/tls.crt" --from-file="$work/tls.key" --from-file="$work/ca.crt" \
    --dry-run=client -o yaml | k apply -f -
}
sealed() { unified sealed 1 | sed 's/kvTransfer: TrustedFabric/kvTransfer: TrustedFabric, workerTlsSecretRef: {name: fabric}/'; }
secret 1
sealed | k apply -f -
eventually 180 is_ready sealed
ask sealed | grep Paris
step "a stranger sees who the worker is, and gets no further"
ip=$(k get pods -l penstock.dev/service=sealed,penstock.dev/role=worker -o 'jsonpath={.items[0].status.podIP}')
stranger() { inside 0 openssl s_client -connect "$ip:7000" -CAfile "$work/ca.crt" 2>&1 || true; }
said=$(sleep 2 | stranger)
grep 'subject=CN = sealed' <<<"$said"
grep -i 'alert certificate required' <<<"$said"
plain=$(printf 'GET / HTTP/1.1\r\n\r\n' | inside 0 timeout 5 socat -t 3 - "TCP:$ip:7000" | tr -d '\0' | head -c 100 || true)
[[ $plain != *HTTP* ]] || fail "plain text is answered: $plain"
step "an expired certificate"
secret -1
k delete pods -l penstock.dev/service=sealed --wait=false
not_available() { condition_is llm/sealed Available False RouterNotReady; }
eventually 120 not_available
sleep 10
not_available || fail "it serves with an expired certificate: $(condition_of llm/sealed Available)"
k logs -l penstock.dev/service=sealed,penstock.dev/role-type=router --tail=200 | grep -i 'certificate' | tail -n 2
step "a new one, and no pod is restarted"
pods() { k get pods -l penstock.dev/service=sealed -o 'jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}'; }
counted() { [ "$(pods | awk 'NF == 2' | wc -l)" = 2 ] && [ "$(pods | wc -l)" = 2 ]; } # the old ones gone, the new ones begun
eventually 90 counted
before=$(pods)
secret 1
eventually 200 is_ready sealed # a kubelet takes up to a minute and a half to bring it
ask sealed | grep Paris
equals "$(pods)" "$before" "pods and restarts"
k delete llm sealed
k delete secret fabric
