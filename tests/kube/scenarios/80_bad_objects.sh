# shellcheck shell=bash source=tests/kube/lib.sh
# Limit: 120 s. Every bad object is refused by the API server with the message that its file announces.
. "$(dirname "$0")/../lib.sh"
work=$(mktemp -d "$state/bad.XXXXXX")
trap 'rm -rf "$work"' EXIT
count=0 wrong=0
for file in "$root"/tests/data/crds/bad/*.yaml; do
  count=$((count + 1))
  expected=$(sed -n 's/^# expect: //p' "$file")
  # With two documents the first is good, and the second is a change of it that must not be.
  rm -f "$work"/*
  csplit -s -z -f "$work/" "$file" '/^---$/' '{*}'
  documents=("$work"/*)
  if [ ${#documents[@]} = 2 ]; then k apply -f - <"${documents[0]}" >/dev/null; fi
  if output=$(k apply --dry-run=server -f - <"${documents[-1]}" 2>&1); then
    echo "ACCEPTED $(basename "$file")"
    wrong=$((wrong + 1))
  elif ! grep -qF -- "$expected" <<<"$output"; then
    printf 'ANOTHER REASON %s: expected "%s"\n%s\n' "$(basename "$file")" "$expected" "$output"
    wrong=$((wrong + 1))
  fi
  if [ ${#documents[@]} = 2 ]; then k delete -f - <"${documents[0]}" --wait=false >/dev/null; fi
done
echo "$count bad objects"
[ "$count" -gt 20 ] || fail "only $count bad objects"
equals "$wrong" 0 "objects that were not refused as they should be"
