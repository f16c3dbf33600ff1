#!/bin/sh
# Runs each fuzz target of the tree, one after the other:
#
#   scripts/fuzz.sh [TIME [PACKAGE...]]
#
# TIME is for each of them, 10s unless given. PACKAGE is ./... unless given, and those of
# test/interop, a module of its own, that have targets; ./test/interop/PACKAGE is one of these.
# What a target finds is printed, and is in the testdata of its package; then it ends
# with 1.
set -eu
cd "$(dirname "$0")/.."

time=${1:-10s}
[ $# -eq 0 ] || shift
# Listing the targets of a package runs its TestMain, so that of interop itself, which
# builds a gateway, is left alone.
[ $# -gt 0 ] || set -- ./... $(grep -rl '^func Fuzz' --include='*_test.go' test/interop | sed 's|^|./|; s|/[^/]*$||' | sort -u)
go=${GO:-go}

log=$(mktemp)
list=$(mktemp)
trap 'rm -f "$log" "$list"' EXIT
trap 'exit 1' HUP INT TERM

# targets prints MODULE PACKAGE TARGET of the given packages of a module.
targets() {
	module=$1
	shift
	[ $# -gt 0 ] || return 0
	(cd "$module" && "$go" test -list '^Fuzz' "$@") >"$log" || { cat "$log" >&2; return 1; }
	awk -v module="$module" '/^Fuzz/ { name[++n] = $1 } /^ok/ { for (i = 1; i <= n; i++) print module, $2, name[i]; n = 0 }' "$log"
}

root=
interop=
for package; do
	case $package in
	./test/interop/*) interop="$interop ./${package#./test/interop/}" ;;
	*) root="$root $package" ;;
	esac
done
# Unquoted: a word for each package.
targets . $root >"$list"
targets test/interop $interop >>"$list"

# An input that reaches something new is made smaller ten times at most: a minute, the
# default, would be longer than the target has.
fuzz() {
	(cd "$1" && "$go" test -run '^$' -fuzz "^$3\$" -fuzztime "$time" -fuzzminimizetime 10x "$2") </dev/null >"$log" 2>&1
}

# stopped tells the end of the time from a finding. Up to Go 1.26 a target may end with
# "context deadline exceeded" and nothing else when its time is over (go.dev/issue/75804).
stopped() {
	grep -q '^ *context deadline exceeded$' "$log" && ! grep -Eq 'Failing input|panic:|_test\.go:|terminated unexpectedly' "$log"
}

found=
while read -r module package name; do
	echo "== $package $name"
	if fuzz "$module" "$package" "$name"; then
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
