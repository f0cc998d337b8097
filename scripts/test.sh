#!/bin/sh
# Runs the Go tests, in two parts at once, and fails when one of them does. Arguments go to go test.
#
# 1. The untagged tests of all packages, under the race detector: no server, no browser, no real waiting.
# 2. The packages with integration tests. They run in real time and wait most of it: three packages at once, and of
#    each the tests that say so.
set -eu
cd "$(dirname "$0")/.."
export TOUCHLINE_BIN="$PWD/bin"

tags=nolibopusfile,builtinassets

# integration_packages lists the packages that have test files for the integration tag alone.
integration_packages() {
	files='{{.ImportPath}} {{.TestGoFiles}} {{.XTestGoFiles}}'
	{
		go list -tags="$tags" -f "$files" ./...
		go list -tags="$tags" -f "$files" ./...
		go list -tags="$tags,integration" -f "$files" ./...
	} | sort | uniq -u | cut -d' ' -f1 | sort -u
}

# The programs' tests take longest, so they go first.
live=$(integration_packages | awk '/\/cmd\// { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }')
if [ -z "$live" ]; then
	echo "test: no package has integration tests" >&2
	exit 1
fi

status=0
fast=$(mktemp)
trap 'rm -f "$fast"' EXIT
go test -vet=off -race -tags="$tags" -timeout 15m "$@" ./... >"$fast" 2>&1 &
# shellcheck disable=SC2086
go test -vet=off -tags="$tags,integration" -timeout 30m -p 3 -parallel 4 "$@" $live || status=1
wait $! || status=1
cat "$fast"
exit $status
