# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 400 s. Not in CI: the API server's certificate has expired, so that nobody trusts it: serving goes on, the operator says
# why it can't work and asks ever more rarely; with a new certificate all goes on.
. "$(dirname "$0")/../lib.sh"
# shellcheck source=deploy/cluster/kubernetes/certificates.sh
. "$root/deploy/cluster/kubernetes/certificates.sh"
at_rest
start_load chat
trust=() # what kubectl is told beyond its kubeconfig
kubectl() { KUBECONFIG=$state/kubeconfig/admin-inside inside 0 "$programs/kubectl" "${trust[@]}" "$@"; }
# Not by SIGTERM: it would take its address out of the Service kubernetes, and nobody would get as far as its certificate.
crash_apiserver() { kill -KILL "$(pid_of kube-apiserver)"; stop_all 5 kube-apiserver; }
renew() { mv "$state"/apiserver.{crt,key} "$state/pki/"; crash_apiserver; start_apiserver; }
step "an expired certificate"
cp "$state"/pki/apiserver.{crt,key} "$state/"
trap 'kill "$load_pid" 2>/dev/null || true; trust=(); [ ! -e "$state/apiserver.crt" ] || renew' EXIT
openssl req -new -key "$state/pki/apiserver.key" -subj /CN=kube-apiserver 2>/dev/null |
  openssl x509 -req -CA "$state/pki/ca.crt" -CAkey "$state/pki/ca.key" -CAcreateserial -days -1 -out "$state/pki/apiserver.crt" \
    -extfile <(printf 'extendedKeyUsage=serverAuth\nsubjectAltName=IP:10.96.0.1,IP:%s\n' "$server") 2>/dev/null
crash_apiserver
trust=(--insecure-skip-tls-verify)
start_apiserver
trust=()
refused=$(kubectl get nodes 2>&1) && fail "kubectl trusts an expired certificate"
grep -o 'certificate has expired' <<<"$refused"
operator_log() { cat "$state"/node-*/pod-logs/penstock-system_penstock-*/*/*.log; }
says_why() { operator_log | grep 'certificate.*expired' >/dev/null; }
eventually 60 says_why
operator_log | grep 'certificate.*expired' | tail -n 1
step "no hot loop"
lines=$(operator_log | wc -l)
sleep 30
lines=$(($(operator_log | wc -l) - lines))
echo "$lines lines of log in 30 s"
[ "$lines" -le 300 ] || fail "$lines lines of log in 30 s"
step "a good certificate"
renew
sleep 5
end_load
eventually 120 is_ready chat
service chat 2 3 | kubectl apply -f -
eventually 180 has_ready chat decode 3
service chat 2 2 | kubectl apply -f -
eventually 120 has_ready chat decode 2
