#!/bin/sh
# Builds the programs from a clean checkout and packs them: an archive for each set of programs, and their checksums.
# usage: scripts/release.sh [DEST]   (dist without)
# The version is the tag of the commit; without one, the commit itself.
set -eu

cd "$(dirname "$0")/.."
dest=${1:-dist}
say() { echo "release: $*"; }

[ -z "$(git status --porcelain)" ] || { echo "release: uncommitted changes: commit or remove them" >&2; exit 1; }
version=$(git describe --tags --exact-match 2>/dev/null || git show -s --format=0.0.0-%cd-%h --date=format:%Y%m%d)
version=${version#v}
platform=$(go env GOOS)_$(go env GOARCH)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
rm -rf "$dest"
mkdir -p "$dest"

# The networks of the engine sight, which go with the programs. Only here npm and pip are needed for them.
go build -trimpath -tags=nolibopusfile -o "$work/touchline-model" ./cmd/touchline-model
"$work/touchline-model" models pull sight "$work/sight"

# pack NAME TAGS PROGRAM...
pack() {
	name=$1_${version}_$platform
	tags=$2
	shift 2
	say "building $name"
	mkdir "$work/$name"
	go build -trimpath -buildvcs=true -tags="$tags" -o "$work/$name/" "$@"
	cp README.md CHANGELOG.md configs/default.yaml "$work/$name/"
	case "$name" in touchline-model_*) ;; *) cp -R "$work/sight" "$work/$name/" ;; esac
	[ ! -e LICENSE ] || cp LICENSE "$work/$name/"
	# The same commit gives the same archive.
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$(git show -s --format=%cI)" -cf - "$name" |
		gzip -n -9 >"$dest/$name.tar.gz"
}
pack touchline nolibopusfile,builtinassets ./cmd/touchline ./cmd/touchline-codec ./cmd/touchline-model
# Without the demo's LiveKit server: half the size and memory.
pack touchline-slim nolibopusfile,builtinassets,nodemo ./cmd/touchline ./cmd/touchline-codec ./cmd/touchline-model
pack touchline-model nolibopusfile ./cmd/touchline-model

(cd "$dest" && sha256sum -- *.tar.gz >SHA256SUMS)
say "$dest:"
(cd "$dest" && du -h -- *.tar.gz && cat SHA256SUMS)
