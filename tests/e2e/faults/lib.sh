# Processes, streams and checks of the fault matrix. Sourced; ends only processes that it started, by their id.
# Variables of the caller: state, router_port, prompt_words, output_tokens, and via_of[NAME]: a command before curl that
# reaches that process's network, or nothing. It may define clean_up, for what else must go at the end.
# shellcheck shell=bash disable=SC2154
declare -A pid_of=() admin_of=() command_of=() host_of=() ports_picked=()

fail() {
  printf 'faults: %s\n' "$*" >&2
  exit 1
}

# At the end, by trap: ends what was started, shows the logs' ends after a failure.
finish() {
  local code=$? log
  stop_all
  if declare -F clean_up >/dev/null; then clean_up; fi
  if [ $code != 0 ]; then
    for log in "$state"/*.log; do
      printf -- '--- %s\n' "$log"
      tail -n 15 "$log"
    done
  fi
  rm -rf "$state"
  exit $code
}

# pick_port VARIABLE...: ports that nobody listens on, below those that the kernel gives to clients, at random, so that
# runs side by side rarely meet. A process that comes back needs the same port again, so the kernel can't choose.
pick_port() {
  local variable port tries
  for variable in "$@"; do
    for ((tries = 0; ; tries++)); do
      [ $tries -lt 1000 ] || fail 'no free port'
      port=$((10000 + RANDOM % 20000))
      [ -z "${ports_picked[$port]:-}" ] || continue
      if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
    done
    ports_picked[$port]=1
    printf -v "$variable" '%s' "$port"
  done
}

# launch NAME HOST ADMIN_PORT COMMAND...: starts a process and remembers how.
launch() {
  local name=$1
  host_of[$name]=$2 admin_of[$name]=$3
  shift 3
  command_of[$name]=$(printf '%q ' "$@")
  "$@" >>"$state/$name.log" 2>&1 </dev/null &
  pid_of[$name]=$!
}

relaunch() {
  eval "${command_of[$1]} >>\"$state/$1.log\" 2>&1 </dev/null &"
  pid_of[$1]=$!
}

fetch() { # NAME PATH: a page of a process's admin port
  ${via_of[$1]:-} curl -s --max-time 2 "http://${host_of[$1]}:${admin_of[$1]}$2"
}

# metric NAME METRIC: the value of a series without labels, as an integer; -1 if there is none. Without a network of its
# own it needs no process, since phases are short.
metric() {
  local name value='' fd
  if [ -n "${via_of[$1]:-}" ]; then
    value=$(fetch "$1" /metrics | awk -v name="$2" '$1 == name { print $2; exit }') || true
  elif { exec {fd}<>"/dev/tcp/${host_of[$1]}/${admin_of[$1]}"; } 2>/dev/null; then
    printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&"$fd"
    while read -r -t 2 name value <&"$fd"; do
      [ "$name" != "$2" ] || break
      value=''
    done
    exec {fd}>&-
  fi
  value=${value%%[.$'\r']*}
  printf '%s' "${value:--1}"
}

# until_true SECONDS WHAT COMMAND...
until_true() {
  local left=$(($1 * 20)) what=$2
  shift 2
  until "$@"; do
    left=$((left - 1))
    [ "$left" -gt 0 ] || fail "timed out: $what"
    sleep 0.05
  done
}

ready_code() {
  [ "$(${via_of[$1]:-} curl -s --max-time 2 -o /dev/null -w '%{http_code}' "http://${host_of[$1]}:${admin_of[$1]}/readyz")" = 200 ]
}
workers_connected() { [ "$(metric router penstock_router_workers_connected)" = "$1" ]; }
is_running() { [ "$(metric "$1" penstock_worker_sequences_running)" -gt 0 ]; }
is_pinned() { [ "$(metric "$1" penstock_worker_kv_blocks_pinned)" -gt 0 ]; }
is_empty() {
  [ "$(metric "$1" penstock_worker_kv_blocks_used)" = 0 ] && [ "$(metric "$1" penstock_worker_kv_blocks_pinned)" = 0 ]
}
has_chunks() { [ "$(grep -c '"text":"[^"]' "$1" || true)" -ge "$2" ]; }

# request TAG: a body whose prompt begins with the tag, so that no two scenarios share a prefix.
request() {
  local words
  words=$(for ((i = 0; i < prompt_words; i++)); do printf ' word%d' $((i % 7)); done)
  printf '{"model":"fake","prompt":"%s%s","max_tokens":%d,"temperature":0,"seed":7,"stream":true}' "$1" "$words" \
    "$output_tokens"
}

# ask TAG FILE: streams the answer into FILE.
ask() {
  request "$1" | ${via_of[router]:-} curl -sN --max-time 60 -H 'content-type: application/json' --data-binary @- \
    "http://${host_of[router]}:$router_port/v1/completions" >"$2"
}

# text_of FILE: the text of a stream, still escaped, then how it ended.
text_of() {
  grep -oP '"text":"\K([^"\\]|\\.)*' "$1" | tr -d '\n' || true
  printf ' | %s%s\n' "$(grep -oP '"finish_reason":"\K[^"]*' "$1" | tail -n 1)" \
    "$(grep -qx 'data: \[DONE\]' <(tr -d '\r' <"$1") && echo ' done')"
}

rss_kb() { awk '/^VmRSS/ { print $2 }' "/proc/${pid_of[$1]}/status"; }

stop_all() {
  local name
  for name in "${!pid_of[@]}"; do
    kill -CONT "${pid_of[$name]}" 2>/dev/null || true
    kill -KILL "${pid_of[$name]}" 2>/dev/null || true
  done
  { wait || true; } 2>/dev/null
}
