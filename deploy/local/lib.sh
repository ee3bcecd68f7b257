# shellcheck shell=bash
# Shared by up, status and down: where the local deployment keeps its state, and how it asks them.
# Sourced, not run.

state=${PENSTOCK_LOCAL_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/penstock/local}
# shellcheck disable=SC2034 # used by up and down
drain_seconds=15

# shellcheck source=deploy/processes.sh
. "${BASH_SOURCE[0]%/*}/../processes.sh"

# An HTTP GET on loopback without curl: the status line's code, and the body on request.
http_status() {
  local line=''
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
  IFS=' ' read -r -t 5 _ line _ <&3 || true
  exec 3>&- 3<&-
  echo "$line"
}
http_body() {
  exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&3
  timeout 5 sed '1,/^\r$/d' <&3
  exec 3>&- 3<&-
}
ready() { [ "$(http_status "$1" /readyz 2>/dev/null)" = 200 ]; }
