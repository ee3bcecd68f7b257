# shellcheck shell=bash
# shellcheck disable=SC2154 # state and server come from lib.sh
# Certificates and kubeconfigs of a cluster, all EC P-256, valid for ten years, kept under $state/pki. Sourced, not run.

new_key() { openssl ecparam -name prime256v1 -genkey -noout 2>/dev/null | openssl pkcs8 -topk8 -nocrypt -out "$1"; }

# authority NAME
authority() {
  [ ! -e "$state/pki/$1.crt" ] || return 0
  new_key "$state/pki/$1.key"
  openssl req -x509 -new -key "$state/pki/$1.key" -days 3650 -subj "/CN=$1" -out "$state/pki/$1.crt" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature
}

# certificate NAME AUTHORITY SUBJECT USAGES [NAMES]: USAGES such as clientAuth,serverAuth; NAMES such as DNS:a,IP:b.
certificate() {
  local base=$state/pki/$1 signer=$state/pki/$2
  [ ! -e "$base.crt" ] || return 0
  new_key "$base.key"
  openssl req -new -key "$base.key" -subj "$3" 2>/dev/null |
    openssl x509 -req -CA "$signer.crt" -CAkey "$signer.key" -CAcreateserial -days 3650 -out "$base.crt" -extfile <(
      printf 'basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' "$4"
      [ -z "${5:-}" ] || printf 'subjectAltName=%s\n' "$5"
    ) 2>/dev/null
}

# kubeconfig NAME CERTIFICATE SERVER: certificates inline, so that the file can be copied.
kubeconfig() {
  local base=$state/pki/$2
  (umask 077 && cat >"$state/kubeconfig/$1") <<YAML
apiVersion: v1
kind: Config
clusters:
- name: penstock
  cluster: {server: "https://$3", certificate-authority-data: $(base64 -w0 "$state/pki/ca.crt")}
users:
- name: $1
  user: {client-certificate-data: $(base64 -w0 "$base.crt"), client-key-data: $(base64 -w0 "$base.key")}
contexts:
- name: penstock
  context: {cluster: penstock, user: $1}
current-context: penstock
YAML
}

make_certificates() {
  mkdir -p "$state/pki" "$state/kubeconfig"
  authority ca
  authority front-proxy-ca
  local name own="DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
  own+=",DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:10.96.0.1,IP:$server"
  certificate apiserver ca /CN=kube-apiserver serverAuth "$own"
  certificate apiserver-kubelet-client ca /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
  certificate front-proxy-client front-proxy-ca /CN=front-proxy-client clientAuth
  certificate admin ca /O=system:masters/CN=admin clientAuth
  certificate controller-manager ca /CN=system:kube-controller-manager clientAuth
  certificate scheduler ca /CN=system:kube-scheduler clientAuth
  certificate proxy ca /CN=system:kube-proxy clientAuth
  if [ ! -e "$state/pki/sa.key" ]; then
    new_key "$state/pki/sa.key"
    openssl ec -in "$state/pki/sa.key" -pubout -out "$state/pki/sa.pub" 2>/dev/null
  fi
  for name in controller-manager scheduler proxy; do kubeconfig "$name" "$name" "$server:6443"; done
  kubeconfig admin-inside admin "$server:6443"
}
