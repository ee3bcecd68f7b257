# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. A group of two pods that must share a rack waits while no rack has room for both, and runs when one has.
. "$(dirname "$0")/../lib.sh"
kubectl label node node-0 node-1 node-2 example.com/rack- >/dev/null 2>&1 || true
kubectl label node node-0 example.com/rack=a
kubectl label node node-1 example.com/rack=b
kubectl apply -f - <<'YAML'
apiVersion: penstock.dev/v1alpha1
kind: ClusterTopology
metadata: {name: racks}
spec:
  levels:
  - {domain: Rack, nodeLabel: example.com/rack}
  - {domain: Host, nodeLabel: kubernetes.io/hostname}
YAML
kubectl apply -f - <<YAML
apiVersion: penstock.dev/v1alpha1
kind: LLMService
metadata: {name: gang, namespace: $namespace}
spec:
  model: {name: smollm2, uri: "file:///models/$(basename "$PENSTOCK_MODEL")"}
  placement: {topologyRef: {name: racks}}
  roles:
  - {name: router, type: Router}
  - name: worker
    type: Unified
    group: {size: 2}
    accelerators: {count: 1, resourceName: example.com/chip}
    parallelism: {tensor: 2}
    placement: {pack: {required: Rack}}
    template:
      spec:
        containers:
        - name: worker
          volumeMounts: [{name: models, mountPath: /models, readOnly: true}]
        volumes:
        - {name: models, hostPath: {path: "$(dirname "$PENSTOCK_MODEL")", type: Directory}}
YAML
for node in 0 1 2; do
  kubectl patch node "node-$node" --subresource=status --type=merge -p '{"status": {"capacity": {"example.com/chip": "1"}, "allocatable": {"example.com/chip": "1"}}}'
done
bound() { [ "$(k get pods -l penstock.dev/service=gang,penstock.dev/role=worker -o 'jsonpath={.items[*].spec.nodeName}' | wc -w)" = "$1" ]; }
made() { [ "$(k get pods -l penstock.dev/service=gang,penstock.dev/role=worker -o name | wc -l)" = 2 ]; }
eventually 60 made
sleep 8
bound 0 || fail "a part of the gang is bound"
step "the third node joins rack b"
kubectl label node node-2 example.com/rack=b
eventually 60 bound 2
k get pods -l penstock.dev/service=gang -o wide
k delete llm gang
kubectl delete clustertopology racks
