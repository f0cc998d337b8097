#!/bin/sh
# Runs the Go tests, in three parts, and fails when one of them does. Arguments go to go test.
#
# 1. The untagged tests of all packages, under the race detector: no server, no browser, no real waiting.
# 2. The packages with integration tests. They run in real time and wait most of it: two packages at once, and of
#    each the tests that say so.
# 3. The scenarios of touchline-bench, which are full rooms of their own.
set -eu
cd "$(dirname "$0")/.."
export TOUCHLINE_BIN="$PWD/bin"

tags=nolibopusfile,builtinassets
bench=touchline/cmd/touchline-bench

# integration_packages lists the packages that have test files for the integration tag alone.
integration_packages() {
	files='{{.ImportPath}} {{.TestGoFiles}} {{.XTestGoFiles}}'
	{
		go list -tags="$tags" -f "$files" ./...
		go list -tags="$tags" -f "$files" ./...
		go list -tags="$tags,integration" -f "$files" ./...
	} | sort | uniq -u | cut -d' ' -f1 | sort -u
}

live=$(integration_packages | grep -vxF "$bench")
if [ -z "$live" ]; then
	echo "test: no package has integration tests" >&2
	exit 1
fi

status=0
go test -vet=off -race -tags="$tags" -timeout 10m "$@" ./... || status=1
for packages in "$live" "$bench"; do
	# shellcheck disable=SC2086
	go test -vet=off -tags="$tags,integration" -timeout 15m -p 2 -parallel 4 "$@" $packages || status=1
done
exit $status
