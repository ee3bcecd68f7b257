# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 400 s. Router and workers speak TLS with each other by a certificate from a Secret; with an expired one the service says
# that it doesn't serve, and serves again when the Secret is renewed and the pods are new.
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
step "who speaks plain text is refused"
ip=$(k get pods -l penstock.dev/service=sealed,penstock.dev/role=worker -o 'jsonpath={.items[0].status.podIP}')
subject() { inside 0 openssl s_client -connect "$ip:7000" </dev/null 2>/dev/null | grep -i 'subject='; }
subject
step "an expired certificate"
secret -1
k delete pods -l penstock.dev/service=sealed --wait=false
not_available() { condition_is llm/sealed Available False RouterNotReady; }
eventually 120 not_available
sleep 10
not_available || fail "it serves with an expired certificate: $(condition_of llm/sealed Available)"
k logs -l penstock.dev/service=sealed,penstock.dev/role-type=router --tail=200 | grep -i 'certificate' | tail -n 2
step "a new one"
secret 1
k delete pods -l penstock.dev/service=sealed --wait=false
eventually 180 is_ready sealed
ask sealed | grep Paris
k delete llm sealed
k delete secret fabric
