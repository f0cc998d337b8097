#!/bin/sh
# Looks for known vulnerabilities in Go's library and in the modules that the programs use, with govulncheck.
# usage: scripts/vuln.sh [DATABASE]   (a URL, of a folder too: file:///srv/vulndb; Go's database without)
# Exit status: 0 for none, 1 for some or another failure, 3 without a database.
set -eu

version=v1.8.0
database=${1:-https://vuln.go.dev}
cd "$(dirname "$0")/.."
tool=$PWD/bin/govulncheck-$version
say() { echo "vuln: $*" >&2; }

[ -x "$tool" ] || {
	say "building govulncheck $version"
	tools=$(mktemp -d)
	trap 'rm -rf "$tools"' EXIT INT TERM
	GOBIN=$tools GOFLAGS='' go install "golang.org/x/vuln/cmd/govulncheck@$version"
	mkdir -p bin
	mv "$tools/govulncheck" "$tool"
}
# govulncheck asks the database after minutes of reading packages.
if ! answer=$("$tool" -db "$database" -mode query -format json stdlib@v1.26.0 2>&1); then
	say "no database at $database: $(echo "$answer" | tail -n 1)"
	exit 3
fi
"$tool" -db "$database" ./... || exit 1
