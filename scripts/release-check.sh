#!/bin/sh
# Shows that a release can be repeated: builds this commit from two clones in two
# folders, each with a build cache of its own, and compares every byte. PLATFORMS are
# all that are released unless set.
set -eu
cd "$(dirname "$0")/.."

export PLATFORMS="${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}"
commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
for place in one two/deeper/down; do
	mkdir -p "$work/$place"
	git clone -q . "$work/$place/tree"
	git -C "$work/$place/tree" checkout -q --detach "$commit"
	echo "build in $place"
	GOCACHE=$work/$place/cache "$work/$place/tree/scripts/release.sh" "$work/$place/dist" >/dev/null
done
diff -r "$work/one/dist" "$work/two/deeper/down/dist"
(cd "$work/one/dist" && if command -v sha256sum >/dev/null; then sha256sum -c SHA256SUMS; else shasum -a 256 -c SHA256SUMS; fi)
program=$(ls "$work"/one/dist/gateway-*-linux-amd64 2>/dev/null || true)
if [ -n "$program" ] && [ "$(uname -sm)" = "Linux x86_64" ]; then
	"$program" version
	if command -v file >/dev/null; then
		file -b "$program" | grep -q 'statically linked' || { echo "the program is not static" >&2; exit 1; }
	fi
fi
if grep -q "$work" "$work"/one/dist/gateway-*; then
	echo "a path of the machine is in a program" >&2
	exit 1
fi
echo "the two builds are the same"
