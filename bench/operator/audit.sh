# shellcheck shell=bash
# shellcheck disable=SC2154 # state comes from deploy/cluster/kubernetes/lib.sh
# Who wrote what and when, out of the API server's audit log. Leases are not in it. Sourced, not run.

audit_line() { wc -l <"$state/audit.log"; }

# audit_since LINE: one line a write that was carried out, of seconds, user, verb, resource, namespace, code, group, name.
audit_since() {
  tail -n +$(($1 + 1)) "$state/audit.log" | jq -r '
    def seconds: (.[0:19] + "Z" | fromdateiso8601) + ("0." + .[20:-1] | tonumber);
    select(.stage == "ResponseComplete" and (.responseStatus.code // 0) < 300 and .objectRef != null) | .objectRef as $on
    | [(.stageTimestamp | seconds), .user.username, .verb,
       $on.resource + (if $on.subresource then "/" + $on.subresource else "" end), $on.namespace // "-",
       .responseStatus.code // 0, $on.apiGroup // "", $on.name // "-"] | @tsv'
}

# The functions below read what audit_since wrote. A verb "created" is code 201 by whatever verb; "any" is every resource.
# span VERB RESOURCE NAMESPACE USER  VERB RESOURCE NAMESPACE USER: seconds from the first of the one to the last of the other.
span() {
  awk -F '\t' -v v1="$1" -v r1="$2" -v n1="$3" -v u1="$4" -v v2="$5" -v r2="$6" -v n2="$7" -v u2="$8" '
    function is(v, r, n, u) {
      return (v == "created" ? $6 == 201 && $4 != "events" : $3 == v) && (r == "any" || $4 == r) && $5 == n && $2 == u
    }
    is(v1, r1, n1, u1) && !first { first = $1 }
    is(v2, r2, n2, u2) { last = $1 }
    END { if (first && last) printf "%.2f\n", last - first; else print "null" }'
}

# count_writes NAMESPACE USER; NAMESPACE may be any.
count_writes() { awk -F '\t' -v n="$1" -v u="$2" '$2 == u && (n == "any" || $5 == n) { c++ } END { print c + 0 }'; }

# created_by USER NAMESPACE: the resources that were created, as kubectl names them; pods last.
created_by() {
  awk -F '\t' -v u="$1" -v n="$2" '$2 == u && $5 == n && $6 == 201 && $4 != "events" && $4 !~ "/" {
      print ($4 == "pods" ? 2 : 1), $4 ($7 == "" ? "" : "." $7) }' | sort -u | cut -d' ' -f2
}

# group_lags NAMESPACE: from the word that a group's last pod runs to the last status of the group, in milliseconds: the middle
# one, that of 99 in 100, the longest.
group_lags() {
  awk -F '\t' -v n="$1" '$5 == n && $4 == "pods/status" && $2 == "fake-nodes" {
      group = $8; sub(/-[^-]*-[^-]*$/, "", group); runs[group] = $1 }
    $5 == n && $4 == "workergroups/status" && $2 == "operator" { told[$8] = $1 }
    END { for (group in told) if (group in runs) printf "%d\n", (told[group] - runs[group]) * 1000 }' | sort -n |
    awk '{ lag[NR] = $1 }
      END { if (NR) printf "[%d,%d,%d]\n", lag[int((NR + 1) / 2)], lag[int(NR * 0.99 + 0.99)], lag[NR]; else print "null" }'
}

# pods_started NAMESPACE: how many the fake nodes have said to run. Cheap enough to ask every second.
pods_started() {
  grep -c "\"username\":\"fake-nodes\".*\"resource\":\"pods\",\"namespace\":\"$1\".*\"subresource\":\"status\"" "$state/audit.log" ||
    true
}
