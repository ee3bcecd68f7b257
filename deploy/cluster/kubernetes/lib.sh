# shellcheck shell=bash
# Shared by start, stop and the scripts beside them: where a cluster keeps its state, and its network namespaces.
# Sourced, not run.
#
# Address plan, inside namespaces of the cluster's own: the control plane and node-0 share one namespace at 10.231.0.1, node-i
# has one at 10.231.0.(1+i), pods of node-i get 10.232.i.0/24 and Services 10.96.0.0/16. Nothing of it is seen outside.

state=${PENSTOCK_CLUSTER_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/penstock/cluster}
mkdir -p "$state"
chmod 700 "$state"
state=$(readlink -f "$state")

# shellcheck source=deploy/processes.sh
. "${BASH_SOURCE[0]%/*}/../../processes.sh"

cluster=penstock-$(printf '%s' "$state" | sha256sum | cut -c1-6) # so that two clusters can stand side by side
server=10.231.0.1
programs=${PENSTOCK_KUBERNETES:-}                                 # folder of the programs, set by start

namespace_of() { echo "$cluster-$1"; }
# `ip netns exec` would hide /sys/fs/cgroup, which the kubelet needs.
inside() { local index=$1; shift; nsenter --net="/run/netns/$(namespace_of "$index")" "$@"; }
# launch_inside INDEX NAME PROGRAM ARGUMENT...
launch_inside() { local index=$1 name=$2; shift 2; launch "$name" nsenter --net="/run/netns/$(namespace_of "$index")" "$@"; }
# forward NAME PORT ADDRESS PORT: a port of this machine's loopback leads into namespace 0. A process a connection: for people and
# tests, not for load.
forward() {
  launch "$1" socat "TCP-LISTEN:$2,bind=127.0.0.1,reuseaddr,fork" \
    "EXEC:nsenter --net=/run/netns/$(namespace_of 0) socat STDIO TCP\:$3\:$4"
}
node_indices() { for folder in "$state"/node-*; do [ -d "$folder" ] && echo "${folder##*node-}"; done; }
ctr_of() { local index=$1; shift; ctr -a "$state/node-$index/containerd.sock" -n k8s.io "$@"; }
import_image() { ctr_of "$1" images import --snapshotter "$(cat "$state/node-$1/snapshotter")" "$2" >/dev/null; }
kubectl() { KUBECONFIG=$state/kubeconfig/admin-inside inside 0 "$programs/kubectl" "$@"; }

# What a kubelet sets for the whole machine; stop puts back what start found.
kernel_settings=(vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes)
# Where containerd, CNI plugins and the kubelet write outside our folder, whatever they are told; parents come first.
machine_folders=(/run/containerd /run/containerd/s /run/containerd/runc /run/containerd/runc/k8s.io /var/lib/cni /var/lib/cni/results
  /var/lib/kubelet /var/lib/kubelet/device-plugins)
save_machine() {
  local name
  [ ! -e "$state/kernel-settings" ] || return 0
  for name in "${machine_folders[@]}"; do [ -d "$name" ] || echo "$name"; done >"$state/folders-to-remove"
  for name in "${kernel_settings[@]}"; do echo "$name $(cat "/proc/sys/$name")"; done >"$state/kernel-settings"
}
restore_machine() {
  local name value
  [ -e "$state/kernel-settings" ] || return 0
  while read -r name value; do echo "$value" >"/proc/sys/$name" || say "  /proc/sys/$name stays as it is"; done <"$state/kernel-settings"
  tac "$state/folders-to-remove" | while read -r name; do
    rm -f "$name/kubelet.sock"
    [ ! -d "$name" ] || rmdir --ignore-fail-on-non-empty "$name"
  done
  rm "$state/kernel-settings" "$state/folders-to-remove"
}

# await SECONDS WHAT COMMAND...: until it succeeds; on a timeout names WHAT and the processes that have died.
await() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    for name in $(names); do
      if ! pid_of "$name" >/dev/null; then
        tail -n 5 "$state/$name.log" >&2
        fail "$name has ended; its log is $state/$name.log"
      fi
    done
    [ "$SECONDS" -lt "$deadline" ] || fail "$what: not within the time allowed; logs are in $state"
    sleep 0.2
  done
}

# Interfaces of namespace INDEX: a bridge for the control plane's, a cable to it for every other.
make_namespace() {
  local index=$1 ns hub
  ns=$(namespace_of "$index") hub=$(namespace_of 0)
  ip netns add "$ns"
  ip -n "$ns" link set lo up
  if [ "$index" = 0 ]; then
    ip -n "$ns" link add hub type bridge
    ip -n "$ns" addr add "$server/24" dev hub
    ip -n "$ns" link set hub up
    ip -n "$ns" route add default dev hub # Service addresses need some route before kube-proxy rewrites them
  else
    ip -n "$hub" link add "node-$index" type veth peer name eth0 netns "$ns"
    ip -n "$hub" link set "node-$index" master hub up
    ip -n "$ns" addr add "10.231.0.$((1 + index))/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" route add default via "$server"
  fi
  inside "$index" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
}

# Every node knows the way to the pods of every other.
route_pods() {
  local here there
  for here in $(node_indices); do
    for there in $(node_indices); do
      [ "$here" = "$there" ] ||
        ip -n "$(namespace_of "$here")" route replace "10.232.$there.0/24" via "10.231.0.$((1 + there))"
    done
  done
}

# Cgroup v1 has a hierarchy for each controller, v2 one for all: the kubelet wants its root to exist in each.
cgroup_folders() {
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup; else printf '%s\n' /sys/fs/cgroup/*/; fi
}
