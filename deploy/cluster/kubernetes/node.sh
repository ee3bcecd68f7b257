# shellcheck shell=bash
# shellcheck disable=SC2154 # state, server, cluster and programs come from lib.sh
# One node: containerd, runc, the kubelet and kube-proxy in a network namespace of its own. Sourced, not run.

pause_image=localhost/penstock-pause:1

# The kind of layers: overlays, which a folder that lies on an overlay itself (in a container, say) can't have, or copies.
snapshotter() {
  local try=$1/try
  mkdir -p "$try"/{lower,upper,work,merged}
  if mount -t overlay none "$try/merged" -o "lowerdir=$try/lower,upperdir=$try/upper,workdir=$try/work" 2>/dev/null; then
    umount "$try/merged"
    echo overlayfs
  else
    echo native
  fi
  rm -rf "$try"
}

write_containerd_config() {
  local folder=$1 pods=$2
  snapshotter "$folder" >"$folder/snapshotter"
  mkdir -p "$folder/cni"
  cat >"$folder/cni/10-penstock.conflist" <<JSON
{"cniVersion": "1.0.0", "name": "penstock", "plugins": [
  {"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$folder/addresses", "ranges": [[{"subnet": "$pods"}]]}}]}
JSON
  # restrict_oom_score_adj: runc dies if it may not lower the score, which root without CAP_SYS_RESOURCE may not.
  cat >"$folder/containerd.toml" <<TOML
version = 2
root = "$folder/containerd"
state = "$folder/run"
[grpc]
  address = "$folder/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause_image"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$folder/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$(cat "$folder/snapshotter")"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
TOML
}

write_kubelet_config() {
  local folder=$1 index=$2
  echo 'nameserver 127.0.0.1' >"$folder/resolv.conf" # no cluster DNS: Services by address or environment
  cat >"$folder/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.231.0.$((1 + index))
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$state/pki/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "$state/pki/node-$index.crt"
tlsPrivateKeyFile: "$state/pki/node-$index.key"
containerRuntimeEndpoint: "unix://$folder/containerd.sock"
cgroupDriver: cgroupfs
cgroupRoot: "/$cluster-$index"
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 110
nodeStatusUpdateFrequency: 4s
podLogsDir: "$folder/pod-logs"
resolvConf: "$folder/resolv.conf"
volumePluginDir: "$folder/volume-plugins"
fileCheckFrequency: 0s
YAML
  cat >"$folder/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: node-$index
clusterCIDR: 10.232.0.0/16
clientConnection: {kubeconfig: "$state/kubeconfig/proxy"}
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s, udpTimeout: 0s, udpStreamTimeout: 0s}
YAML
}

make_cgroup() {
  local folder file
  for folder in $(cgroup_folders); do mkdir -p "$folder/$cluster-$1" 2>/dev/null || true; done
  # A new cpuset on cgroup v1 is empty, and nothing can run in an empty one.
  if [ -e /sys/fs/cgroup/cpuset/cpuset.cpus ]; then
    for file in cpuset.cpus cpuset.mems; do cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$cluster-$1/$file"; done
  fi
}

# start_kubelet INDEX: apart from the rest, because tests stop a node and bring it back.
start_kubelet() {
  local folder=$state/node-$1
  launch_inside "$1" "containerd-$1" containerd -c "$folder/containerd.toml"
  await 60 "containerd of node-$1" ctr_of "$1" version
  launch_inside "$1" "kubelet-$1" "$programs/kubelet" --config "$folder/kubelet.yaml" \
    --kubeconfig "$state/kubeconfig/kubelet-$1" --root-dir "$folder/kubelet" --hostname-override "node-$1" \
    --node-ip "10.231.0.$((1 + $1))"
  launch_inside "$1" "kube-proxy-$1" "$programs/kube-proxy" --config "$folder/proxy.yaml"
}

node_is_ready() {
  [ "$(kubectl get node "node-$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

# start_node INDEX IMAGE_ARCHIVE...: returns when the images are there and the node is Ready.
start_node() {
  local index=$1 folder=$state/node-$1 archive
  shift
  [ "$index" = 0 ] || make_namespace "$index"
  mkdir -p "$folder"
  make_cgroup "$index"
  certificate "node-$index" ca "/O=system:nodes/CN=system:node:node-$index" clientAuth,serverAuth \
    "DNS:node-$index,IP:10.231.0.$((1 + index)),IP:127.0.0.1"
  kubeconfig "kubelet-$index" "node-$index" "$server:6443"
  write_containerd_config "$folder" "10.232.$index.0/24"
  write_kubelet_config "$folder" "$index"
  route_pods
  start_kubelet "$index"
  for archive in "$@"; do import_image "$index" "$archive"; done
  await 120 "node-$index" node_is_ready "$index"
}

# stop_node INDEX: the way a machine dies: the kubelet first, then all that ran there, without a word to the API server.
stop_node() {
  local index=$1 folder=$state/node-$1 task pid mount sockets
  stop_all 10 "kubelet-$index" "kube-proxy-$index"
  # Shims keep their sockets in a folder of the machine, and say in their own folders which is theirs.
  mapfile -t sockets < <(find "$folder/run" -path '*/k8s.io/*' -name address -exec cat {} \; -exec echo \; 2>/dev/null)
  for task in $(timeout 10 ctr -a "$folder/containerd.sock" -n k8s.io tasks ls -q 2>/dev/null); do
    timeout 10 ctr -a "$folder/containerd.sock" -n k8s.io tasks delete -f "$task" >/dev/null 2>&1 || true
  done
  stop_all 10 "containerd-$index"
  # Shims outlive containerd; ours carry our socket in their arguments.
  for pid in $(pgrep -f "containerd-shim.* -address $folder/containerd.sock" || true); do
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -f "${sockets[@]#unix://}"
  awk -v prefix="$folder/" 'index($2, prefix) == 1 {print $2}' /proc/mounts | sort -r |
    while read -r mount; do umount "$mount" 2>/dev/null || umount -l "$mount"; done
}

remove_node() {
  local folder
  stop_node "$1"
  for folder in $(cgroup_folders); do
    [ ! -d "$folder/$cluster-$1" ] || find "$folder/$cluster-$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done
  # What CNI remembers of our pods names the namespaces that we made for them.
  { grep -lsF "$state/node-$1/" /var/lib/cni/results/* || true; } | xargs -r rm -f
  rm -rf "$state/node-$1"
  ip netns delete "$(namespace_of "$1")" 2>/dev/null || true
}
