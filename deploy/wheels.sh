# Files that come as Python wheels at fixed versions. Sourced.
# shellcheck shell=bash

# fetch_wheels REQUIREMENTS WORK: installs them into WORK/wheels, each checked by its hash. Without pip a venv in WORK brings one.
fetch_wheels() {
  local requirements=$1 work=$2 pip=(python3 -m pip)
  if ! "${pip[@]}" --version >/dev/null 2>&1; then
    python3 -m venv "$work/venv"
    pip=("$work/venv/bin/pip")
  fi
  "${pip[@]}" install -q --root-user-action=ignore --disable-pip-version-check --no-deps --only-binary=:all: --no-compile \
    --require-hashes --target "$work/wheels" -r "$requirements"
  rm -rf "$work/venv"
}
