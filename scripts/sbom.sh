#!/bin/sh
# Lists what the programs and the viewer page are made of, as CycloneDX: the modules that Go wrote into each program, the npm packages
# of the page, and the packages that scripts/runtime.sh and `touchline-model models pull sight` fetch. Libraries of the system are not in
# these lists.
# usage: scripts/sbom.sh [DEST]   (bin/sbom without)
set -eu

version=v1.10.0
cd "$(dirname "$0")/.."
dest=${1:-bin/sbom}
tool=$PWD/bin/cyclonedx-gomod-$version
say() { echo "sbom: $*"; }

[ -x "$tool" ] || {
	say "building cyclonedx-gomod $version"
	tools=$(mktemp -d)
	trap 'rm -rf "$tools"' EXIT INT TERM
	GOBIN=$tools GOFLAGS='' go install "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$version"
	mv "$tools/cyclonedx-gomod" "$tool"
}
mkdir -p "$dest"
for program in touchline touchline-codec touchline-model; do
	"$tool" bin -json -std -output "$dest/$program.json" "bin/$program"
done
(cd agent/console/web && npm sbom --package-lock-only --omit dev --sbom-format cyclonedx) >"$dest/page.json"
python3 scripts/libraries.py >"$dest/libraries.json"
say "$dest: $(cd "$dest" && ls | tr '\n' ' ')"
