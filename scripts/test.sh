#!/bin/sh
# Runs the Go tests, in two parts at once, and fails when one of them does. Arguments go to go test.
#
# 1. The untagged tests of all packages, under the race detector: no server, no browser, no real waiting.
# 2. The packages with integration tests. They run in real time and wait most of it: three packages at once, and of
#    each the tests that say so.
#
# What fails runs once more when all else is done, alone: a machine that is too busy for real time then shows as "failed
# beside others", and only what fails again fails the whole. A data race is never forgiven.
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

fast_tests() { go test -vet=off -race -tags="$tags" -timeout 15m "$@"; }
live_tests() { go test -vet=off -tags="$tags,integration" -timeout 30m "$@"; }

# failed prints a line for each failed package of a log: its name, and the names of the failed tests where all others ran.
failed() {
	awk '/^--- FAIL: / { names = names " " $3 }
		/^(panic|fatal error): / { broke = 1 }
		/^FAIL\t/ { print $2 (broke ? "" : names) }
		/^(ok|FAIL|\?)[ \t]/ { names = ""; broke = 0 }' "$1"
}

# once_more PART ARGUMENT...: the failed tests of a part, alone.
once_more() {
	part=$1
	shift
	failed "$logs/$part" >"$logs/failed"
	[ -s "$logs/failed" ] || return 1
	again=0
	while read -r package names; do
		echo "test: failed beside others, once more alone: $package $names"
		"${part}_tests" -p 1 -parallel 1 -count 1 -run "^($(echo "${names:-.*}" | tr ' ' '|'))\$" "$@" "$package" </dev/null || again=1
	done <"$logs/failed"
	return $again
}

status=0
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
{ fast_tests "$@" ./... || touch "$logs/fast_failed"; } >"$logs/fast" 2>&1 &
# shellcheck disable=SC2086
{ live_tests -p 3 -parallel 4 "$@" $live || touch "$logs/live_failed"; } 2>&1 | tee "$logs/live"
wait $!
cat "$logs/fast"
! grep -q 'WARNING: DATA RACE' "$logs/fast" || status=1
for part in fast live; do
	[ ! -e "$logs/${part}_failed" ] || once_more "$part" "$@" || status=1
done
exit $status
