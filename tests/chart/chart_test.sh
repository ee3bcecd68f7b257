#!/usr/bin/env bash
# The chart without a cluster: lint, renders that are compared with golden files, values that must be refused, and metric names
# in dashboards and alerts that must exist.
#   tests/chart/chart_test.sh [--update]      --update writes the golden files anew
set -euo pipefail
cd "$(dirname "$0")/../.."
helm=${XDG_CACHE_HOME:-$HOME/.cache}/penstock/tools/helm
[ -x "$helm" ] || { echo "there is no helm: run deploy/dependencies --test" >&2; exit 1; }
chart=helm/penstock failures=0
wrong() { printf 'FAILED: %s\n' "$*"; failures=$((failures + 1)); }

for values in tests/chart/values/*.yaml; do
  name=$(basename "$values" .yaml) golden=tests/chart/golden/$(basename "$values")
  "$helm" lint --strict --quiet -f "$values" "$chart" || wrong "lint with $values"
  # Dashboards are files of their own already: not a second time here.
  rendered=$("$helm" template release "$chart" -n penstock-system -f "$values" | sed -E 's/^(  [a-z]+\.json: ).*/\1.../')
  if [ "${1:-}" = --update ]; then printf '%s\n' "$rendered" >"$golden"; continue; fi
  diff -u "$golden" <(printf '%s\n' "$rendered") || wrong "$name renders otherwise than $golden; if that is right, run with --update"
done

refused() {
  if output=$("$helm" template release "$chart" "$@" 2>&1); then wrong "accepted: $*"; return; fi
  grep -q 'values don.t meet the specifications' <<<"$output" || wrong "refused for another reason: $*: $output"
}
refused --set replicaCount=-1
refused --set replicas=3
refused --set image.pullPolicy=Sometimes
refused --set image.digest=latest
refused --set 'watchNamespaces={Not_A_Namespace}'
refused --set service.port=70000
refused --set operator.gangBackend=Slurm
refused --set metrics.podMonitor.interval=soon
refused --set modelCacheAgent.hostPath=relative
refused --set modelCacheAgent.budget=lots
refused --set modelCacheAgent.hub=huggingface.co
refused --set modelCacheAgent.sourcePath=relative
refused --set 'modelCacheAgent.egressPorts={70000}'

sources=$(grep -rhoE '"[a-z0-9_]+"' router worker operator common --include=*.cpp --include=*.hpp | tr -d '"' | sort -u)
while read -r metric; do
  # Some names are put together from the program's prefix and the rest.
  grep -qxE "$metric|${metric#penstock_*_}" <<<"$sources" || wrong "no program exports $metric"
done < <(grep -rhoE 'penstock_(router|worker|operator|agent)_[a-z0-9_]+' "$chart"/{dashboards,alerts} | sed -E 's/_bucket$//' | sort -u)

[ "$failures" = 0 ] || { echo "$failures checks failed"; exit 1; }
echo "the chart is right"
