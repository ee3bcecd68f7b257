# shellcheck shell=bash
# shellcheck disable=SC2154 # state is set by the script that sources this
# Background processes that a script starts and a later one ends. Sourced, not run; needs `state`, a folder.
# A process is ours if its pid still has the start time that was written down when it was started: a reused pid has another.

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

# write_pid NAME PID: makes the process ours.
write_pid() { echo "$2 $(start_time_of "$2")" >"$state/$1.pid"; }

# launch NAME PROGRAM ARGUMENT...: in the background, in a session of its own, its log in $state/NAME.log.
launch() {
  local name=$1
  shift
  # The log of the run before is kept once.
  [ ! -e "$state/$name.log" ] || mv "$state/$name.log" "$state/$name.log.1"
  setsid nohup "$@" >"$state/$name.log" 2>&1 </dev/null &
  write_pid "$name" $!
}

# stop_all SECONDS NAME...: asks all to end, then waits for each; ends what takes longer than SECONDS.
stop_all() {
  local seconds=$1 name pid waited
  shift
  for name in "$@"; do
    if pid=$(pid_of "$name"); then kill -TERM "$pid" 2>/dev/null || true; fi
  done
  for name in "$@"; do
    waited=0
    while pid=$(pid_of "$name"); do
      if [ "$waited" -ge $((seconds * 10)) ]; then
        say "  $name did not end in $seconds s, killing it"
        kill -KILL "$pid" 2>/dev/null || true
      fi
      sleep 0.1
      waited=$((waited + 1))
      [ "$waited" -lt $((seconds * 10 + 50)) ] || fail "$name (pid $pid) does not end"
    done
    rm -f "$state/$name.pid" "$state/$name.args"
  done
}
