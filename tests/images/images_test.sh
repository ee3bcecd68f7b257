#!/usr/bin/env bash
# What images hold, without building them: the program starts with nothing but its own files, trusts the system's authorities, says
# what it is made of, and the operator's is below its limit.
#   tests/images/images_test.sh FOLDER_OF_PROGRAMS
set -euo pipefail
bin=${1:?}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
wrong() { echo "$*" >&2; failed=1; }

for name in penstock-operator penstock-router penstock-worker; do
  folder=$work/$name
  deploy/images/root "$bin/$name" "$folder"
  bytes=$(find "$folder" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
  printf '%s: %.1f MB\n' "$name" "$(awk -v b="$bytes" 'BEGIN { print b / 1e6 }')"
  [ "$name" != penstock-operator ] || [ "$bytes" -lt 15000000 ] || wrong "the operator's image holds $bytes bytes; the limit is 15 MB"
  # Where OpenSSL looks, which is built into it.
  cert=$folder$(openssl version -d | cut -d'"' -f2)/cert.pem
  [ -s "$folder$(readlink "$cert")" ] || wrong "$name: OpenSSL finds no authorities in the image"
  jq -e '.packages | length > 5 and all(.versionInfo | length > 0)' "$folder/usr/share/doc/sbom.spdx.json" >/dev/null || wrong "$name: its list of packages"
  # Loaded by name: without them a worker moves no KV.
  [ "$name" != penstock-worker ] || [ -n "$(find "$folder/usr/lib" -path '*/ucx/libuct_*')" ] || wrong "$name: UCX has no transports in the image"
  for package in libssl-dev libc6; do
    [ -s "$folder/usr/share/doc/$package/copyright.gz" ] || wrong "$name: no licence of $package"
  done
  if [ "$(id -u)" = 0 ]; then
    chroot "$folder" "/usr/bin/$name" --help >"$work/help" 2>&1 || wrong "$name does not start in its image: $(head -n 2 "$work/help")"
  fi
done

# Libraries that are loaded by name, as those of worker-cuda: they, their licence and their version are in the image.
mkdir -p "$work/libraries/lib"
echo library >"$work/libraries/lib/libexample.so.13"
echo 'you may' >"$work/libraries/licence"
printf 'vendor-example\t13.0.2\n' >"$work/libraries/package"
deploy/images/root "$bin/penstock-worker" "$work/with" "$work/libraries"
[ -s "$work/with/usr/lib/x86_64-linux-gnu/libexample.so.13" ] || wrong "the library is not in the image"
[ "$(zcat "$work/with/usr/share/doc/vendor-example/copyright.gz")" = 'you may' ] || wrong "its licence is not in the image"
jq -e '.packages | map(select(.name == "vendor-example"))[0] | .versionInfo == "13.0.2" and (.supplier | endswith("NVIDIA"))' \
  "$work/with/usr/share/doc/sbom.spdx.json" >/dev/null || wrong "the list of packages has no line for it"
exit "$failed"
