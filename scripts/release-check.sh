#!/bin/sh
# Shows that a release can be repeated: builds this commit from two clones in two
# folders, each with a build cache of its own, and compares every byte. PLATFORMS is
# linux/amd64 and windows/amd64 unless set.
set -eu
cd "$(dirname "$0")/.."

export PLATFORMS="${PLATFORMS:-linux/amd64 windows/amd64}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for place in one two/deeper/down; do
	mkdir -p "$work/$place"
	git clone -q . "$work/$place/tree"
	echo "build in $place"
	GOCACHE=$work/$place/cache "$work/$place/tree/scripts/release.sh" "$work/$place/dist" >/dev/null
done
diff -r "$work/one/dist" "$work/two/deeper/down/dist"
(cd "$work/one/dist" && sha256sum -c SHA256SUMS)
program=$(ls "$work"/one/dist/gateway-*-linux-amd64 2>/dev/null || true)
if [ -n "$program" ] && [ "$(uname -sm)" = "Linux x86_64" ]; then
	"$program" version
	if command -v file >/dev/null; then file -b "$program" | grep -q 'statically linked'; fi
fi
if grep -q "$work" "$work"/one/dist/gateway-*; then
	echo "a path of the machine is in a program" >&2
	exit 1
fi
echo "the two builds are the same"
