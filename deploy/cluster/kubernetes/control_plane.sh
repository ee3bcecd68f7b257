# shellcheck shell=bash
# shellcheck disable=SC2154 # state, server and programs come from lib.sh
# etcd, the API server, the controller manager and the scheduler, in namespace 0. Sourced, not run.

# Gang scheduling (PodGroup) and its topology constraints are not on by default in 1.37.
gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true,DRAWorkloadResourceClaims=true
apis=scheduling.k8s.io/v1beta1=true

start_etcd() {
  # Nobody needs this cluster after a power failure, and fsync on a shared disk costs seconds.
  launch_inside 0 etcd "$programs/etcd" --name penstock --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster penstock=http://127.0.0.1:2380
}

# Apart from the rest, because tests stop the API server and bring it back.
start_apiserver() {
  local pki=$state/pki
  launch_inside 0 kube-apiserver "$programs/kube-apiserver" \
    --etcd-servers http://127.0.0.1:2379 --bind-address 0.0.0.0 --advertise-address "$server" --secure-port 6443 \
    --service-cluster-ip-range 10.96.0.0/16 --allow-privileged \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" --client-ca-file "$pki/ca.crt" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$pki/sa.pub" --service-account-signing-key-file "$pki/sa.key" \
    --kubelet-certificate-authority "$pki/ca.crt" --kubelet-preferred-address-types InternalIP \
    --kubelet-client-certificate "$pki/apiserver-kubelet-client.crt" \
    --kubelet-client-key "$pki/apiserver-kubelet-client.key" \
    --requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$pki/front-proxy-client.crt" --proxy-client-key-file "$pki/front-proxy-client.key" \
    --audit-policy-file "$state/audit-policy.yaml" --audit-log-path "$state/audit.log" \
    --feature-gates "$gates" --runtime-config "$apis" --profiling=false
  await 120 "the API server" kubectl get --raw /readyz
}

# Only after the API server is ready: without its bootstrap roles both are refused what they read first, and exit.
start_controllers() {
  local config=$state/kubeconfig
  launch_inside 0 kube-controller-manager "$programs/kube-controller-manager" \
    --kubeconfig "$config/controller-manager" --authentication-kubeconfig "$config/controller-manager" \
    --authorization-kubeconfig "$config/controller-manager" --bind-address 127.0.0.1 \
    --cert-dir "$state/controller-manager" --service-account-private-key-file "$state/pki/sa.key" \
    --root-ca-file "$state/pki/ca.crt" --cluster-signing-cert-file "$state/pki/ca.crt" \
    --cluster-signing-key-file "$state/pki/ca.key" --use-service-account-credentials --leader-elect=false \
    --profiling=false --node-monitor-grace-period "${PENSTOCK_NODE_GRACE:-40s}" --feature-gates "$gates"
  launch_inside 0 kube-scheduler "$programs/kube-scheduler" \
    --kubeconfig "$config/scheduler" --authentication-kubeconfig "$config/scheduler" \
    --authorization-kubeconfig "$config/scheduler" --bind-address 127.0.0.1 --cert-dir "$state/scheduler" \
    --leader-elect=false --profiling=false --feature-gates "$gates" \
    --kube-api-qps "${PENSTOCK_SCHEDULER_QPS:-50}" --kube-api-burst $((2 * ${PENSTOCK_SCHEDULER_QPS:-50}))
  await 60 "the controller manager" kubectl get serviceaccount default
  await 60 "the scheduler" inside 0 curl -skf --max-time 2 https://127.0.0.1:10259/readyz
}

start_control_plane() {
  # Tests read from the audit log who wrote what.
  cat >"$state/audit-policy.yaml" <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: None, resources: [{group: coordination.k8s.io, resources: [leases]}]}
- {level: Metadata}
YAML
  start_etcd
  start_apiserver
  start_controllers
}
