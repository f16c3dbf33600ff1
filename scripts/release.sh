#!/bin/sh
# Builds the gateway for every platform into a folder, with checksums, and a bill of
# materials (CycloneDX) of each program:
#
#   scripts/release.sh [FOLDER]
#
# FOLDER is dist unless given, and is made anew. The same commit built by the same Go
# gives the same bytes, in whatever folder: no paths, times or names of machines get
# in. VERSION is what git says of the commit unless set; PLATFORMS are what is built.
set -eu
cd "$(dirname "$0")/.."

out=${1:-dist}
go=${GO:-go}
version=${VERSION:-$(git describe --tags --always --dirty --abbrev=12)}
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}

case $version in
*[!0-9A-Za-z._+-]*|'') echo "VERSION \"$version\" must be letters, digits and ._+-" >&2; exit 1 ;;
*-dirty) echo "note: the tree has changes that no commit has; such a build cannot be repeated" >&2 ;;
esac

# Nothing of whoever builds it has a say: no flags, no workspace, and the plainest
# instruction sets.
export CGO_ENABLED=0 GOFLAGS="${RELEASE_GOFLAGS:-}" GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT=

if [ -e "$out" ] && [ ! -e "$out/SHA256SUMS" ]; then
	echo "$out is there and is no release; it is not overwritten" >&2
	exit 1
fi
rm -rf "$out"
mkdir -p "$out"
for platform in $platforms; do
	os=${platform%/*} arch=${platform#*/} suffix=
	[ "$os" != windows ] || suffix=.exe
	file=gateway-$version-$os-$arch$suffix
	echo "$file"
	GOOS=$os GOARCH=$arch "$go" build -mod=readonly -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.version=$version" -o "$out/$file" ./cmd/gateway
done
# A bill is read from what the linker wrote down in the program. It has no time and no
# serial number, and the checksums of the tool, which are the same for the same Go.
for program in "$out"/gateway-*; do
	GOFLAGS=-trimpath "$go" run "$sbom" bin -json -std -noserial -notimestamp -version "$version" \
		-output "$program.cdx.json" "$program"
done
cd "$out"
if command -v sha256sum >/dev/null; then sha256sum gateway-*; else shasum -a 256 gateway-*; fi >SHA256SUMS
