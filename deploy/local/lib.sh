# shellcheck shell=bash
# Shared by up, status and down: where the local deployment keeps its state, and how it knows its own processes.
# Sourced, not run. A process is ours if its pid still has the start time that `up` wrote down: a reused pid is not.

state=${PENSTOCK_LOCAL_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/penstock/local}
drain_seconds=15

say() { printf '%s\n' "$*"; }
fail() { printf 'penstock: %s\n' "$*" >&2; exit 1; }

# Field 22 of /proc/PID/stat, counted after the command name (which may hold spaces).
start_time_of() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The pid of the named process if it is ours and alive.
pid_of() {
  local pid start
  read -r pid start 2>/dev/null <"$state/$1.pid" || return 1
  [ -n "$start" ] && [ "$(start_time_of "$pid")" = "$start" ] || return 1
  # A process that has ended but was not waited for is not alive.
  [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f1)" != Z ] || return 1
  echo "$pid"
}

names() { for file in "$state"/*.pid; do [ -e "$file" ] && basename "$file" .pid; done; }

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

# Asks the named processes to drain, all at once, then waits for each; ends what does not go.
stop_all() {
  local name pid waited
  for name in "$@"; do
    if pid=$(pid_of "$name"); then kill -TERM "$pid" 2>/dev/null || true; fi
  done
  for name in "$@"; do
    waited=0
    while pid=$(pid_of "$name"); do
      if [ "$waited" -ge $((drain_seconds * 10)) ]; then
        say "  $name did not drain in $drain_seconds s, ending it"
        kill -KILL "$pid" 2>/dev/null || true
      fi
      sleep 0.1
      waited=$((waited + 1))
      [ "$waited" -lt $((drain_seconds * 10 + 50)) ] || fail "$name (pid $pid) does not end"
    done
    rm -f "$state/$name.pid" "$state/$name.args"
  done
}
