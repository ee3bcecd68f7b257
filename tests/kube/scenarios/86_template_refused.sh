# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 240 s. Not in CI: templates and placements that can't be are conditions and events, nothing is made of them, and what runs goes on.
. "$(dirname "$0")/../lib.sh"
event() { k get events.events.k8s.io -o 'jsonpath={range .items[*]}{.reason} {.regarding.name}{"\n"}{end}' | grep -x "$1 $2" >/dev/null; }
router_with() { sed "s|- {name: router, type: Router}|- {name: router, type: Router, template: {spec: {$1}}}|"; }

step "a worker's template"
unified refused 1 "" "imagePullPolicy: Sometimes" | k apply -f -
eventually 60 condition_is llm/refused TemplateValid False TemplateRejected
condition_of llm/refused TemplateValid | grep -F 'imagePullPolicy'
eventually 30 event TemplateRejected refused
equals "$(k get pods -l penstock.dev/service=refused,penstock.dev/role=worker -o name | wc -l)" 0 "pods of the refused template"

step "a domain that the topology doesn't have"
unified nowhere 1 | sed 's/^    replicas: 1/&\n    placement: {pack: {required: Nowhere}}/' | k apply -f -
eventually 60 condition_is llm/nowhere TopologyValid False UnknownDomain
eventually 30 event UnknownDomain nowhere
equals "$(k get pods -l penstock.dev/service=nowhere,penstock.dev/role=worker -o name | wc -l)" 0 "pods of no domain"
k delete llm nowhere --wait=false

step "a router's template, first one that no Deployment takes, then one that no pod may have"
unified refused 1 | k apply -f -
eventually 120 is_ready refused
running() { k get deployment refused-router -o 'jsonpath={.metadata.generation}'; }
before=$(running)
unified refused 1 | router_with 'restartPolicy: Never' | k apply -f -
eventually 60 condition_is llm/refused TemplateValid False TemplateRejected
condition_of llm/refused TemplateValid | grep -F 'restartPolicy'
unified refused 1 | router_with 'priorityClassName: absent' | k apply -f -
priority_is_named() { condition_of llm/refused TemplateValid | grep -F 'PriorityClass'; }
eventually 60 priority_is_named
equals "$(running)" "$before" "generation of the router's Deployment"
ask refused
line=$(audit_line)
sleep 20
[ "$(writes_since "$line" | wc -l)" -le 20 ] || fail "too many writes in 20 s"
unified refused 1 | k apply -f -
eventually 60 condition_is llm/refused TemplateValid True Valid
eventually 60 is_ready refused
k delete llm refused
