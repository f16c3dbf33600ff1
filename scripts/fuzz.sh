#!/bin/sh
# Runs each fuzz target of the tree, one after the other:
#
#   scripts/fuzz.sh [TIME [PACKAGE...]]
#
# TIME is for each of them, 10s unless given; PACKAGE ./... unless given. What a target
# finds is printed, and is in the testdata of its package; then it ends with 1.
set -eu
cd "$(dirname "$0")/.."

time=${1:-10s}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- ./...
go=${GO:-go}

log=$(mktemp)
list=$(mktemp)
trap 'rm -f "$log" "$list"' EXIT
trap 'exit 1' HUP INT TERM

"$go" test -list '^Fuzz' "$@" >"$log" || { cat "$log"; exit 1; }
awk '/^Fuzz/ { name[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print $2, name[i]; n = 0 }' "$log" >"$list"

# An input that reaches something new is made smaller ten times at most: a minute, the
# default, would be longer than the target has.
fuzz() {
	"$go" test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x "$1" </dev/null >"$log" 2>&1
}

# stopped tells the end of the time from a finding. Up to Go 1.26 a target may end with
# "context deadline exceeded" and nothing else when its time is over (go.dev/issue/75804).
stopped() {
	grep -q '^ *context deadline exceeded$' "$log" && ! grep -Eq 'Failing input|panic:|_test\.go:|terminated unexpectedly' "$log"
}

found=
while read -r package name; do
	echo "== $package $name"
	if fuzz "$package" "$name"; then
		grep '^fuzz: elapsed' "$log" | tail -n 1
	elif stopped; then
		grep '^fuzz: elapsed' "$log" | tail -n 1
		echo "its time was over"
	else
		cat "$log"
		found="$found $package.$name"
	fi
done <"$list"
[ -z "$found" ] || { echo "found by:$found" >&2; exit 1; }
