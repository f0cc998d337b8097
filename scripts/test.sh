#!/bin/sh
# Runs the Go tests. usage: scripts/test.sh [race] [argument of go test ...]
#
# Without "race", two parts run side by side:
# 1. fast: the untagged tests of all packages, under the race detector: no server, no browser, no real waiting. They run
#    at a lower priority than the others.
# 2. live: the packages with integration tests. They run in real time and wait most of it, so several packages run at
#    once: fewer where cores are few, slow or busy.
# With "race", the live part alone runs, under the race detector, one package at a time.
#
# The whole set of a package that fails runs once more when all else is done; what passes then is printed as "passed at the
# second try" and appended to bin/retried.tsv: time, commit, part, package, failed tests, result of the second try. A data
# race of this module fails at once, one between goroutines of a library (LiveKit's server has one when a negotiation fails)
# at the second try.
set -eu
cd "$(dirname "$0")/.."
export TOUCHLINE_BIN="$PWD/bin"

tags=nolibopusfile,builtinassets
race=
if [ "${1:-}" = race ]; then
	race=-race
	export NVRTC="$PWD/bin/nvrtc" CUBINS=all # required, and for all architectures, rows and forms
	shift
fi

# integration_packages lists the packages that have test files for the integration tag alone.
integration_packages() {
	files='{{.ImportPath}} {{.TestGoFiles}} {{.XTestGoFiles}}'
	{
		go list -tags="$tags" -f "$files" ./...
		go list -tags="$tags" -f "$files" ./...
		go list -tags="$tags,integration" -f "$files" ./...
	} | sort | uniq -u | cut -d' ' -f1 | sort -u
}

# pace prints how many milliseconds a fixed loop takes: 600 on a free core of 2022.
pace() {
	start=$(date +%s%3N)
	sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done'
	echo $(($(date +%s%3N) - start))
}

# at_once prints how many packages of the live part run at once.
at_once() {
	if [ "$(pace)" -gt 1000 ]; then echo 2; else echo 3; fi
}

# The programs' tests take longest, so they go first.
live=$(integration_packages | awk '/\/cmd\// { print; next } { rest = rest $0 "\n" } END { printf "%s", rest }')
if [ -z "$live" ]; then
	echo "test: no package has integration tests" >&2
	exit 1
fi
packages=$(at_once) parallel=4
if [ -n "$race" ]; then
	# The programs need several times the CPU: one package at a time, with a test for each core, built before.
	packages=1 parallel=$(nproc)
	[ "$parallel" -le 4 ] || parallel=4
	go build -race -tags="$tags,integration" ./...
fi

fast_tests() { nice -n 10 go test -vet=off -race -tags="$tags" -timeout 40m "$@"; }
live_tests() { go test -vet=off $race -tags="$tags,integration" -timeout "$([ -z "$race" ] && echo 40m || echo 90m)" -p "$packages" -parallel "$parallel" "$@"; }

# failed prints a line for each failed package of a log: its name, and the names of the failed tests.
failed() {
	awk '/^--- FAIL: / { names = names " " $3 }
		/^(panic|fatal error): / { names = names " (crash)" }
		/^FAIL\t/ { print $2 "\t" (names == "" ? "(build or set-up)" : substr(names, 2)) }
		/^(ok|FAIL|\?)[ \t]/ { names = "" }' "$1"
}

# own_race reports whether a log has a data race in which this module's code reads or writes.
own_race() {
	awk '/^WARNING: DATA RACE/ { access = 1 }
		/^Goroutine |^==================$/ { access = 0 }
		access && /^  touchline\// { own = 1 }
		END { exit !own }' "$@"
}

# once_more PART ARGUMENT...: the failed packages of a part, as they ran first.
once_more() {
	part=$1
	shift
	failed "$logs/$part" >"$logs/failed"
	[ -s "$logs/failed" ] || return 1
	cut -f1 "$logs/failed" >"$logs/packages"
	echo "test: a second try of the $part tests of" $(cat "$logs/packages")
	# shellcheck disable=SC2046
	"${part}_tests" -count 1 "$@" $(cat "$logs/packages") >"$logs/again" 2>&1 </dev/null || true
	cat "$logs/again"
	! own_race "$logs/again" || return 1
	failed "$logs/again" | cut -f1 >"$logs/still"
	tab=$(printf '\t')
	while IFS="$tab" read -r package names; do
		result=passed
		! grep -qx "$package" "$logs/still" || result=failed
		echo "test: $package: $names: $result at the second try"
		printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$commit" "$part" "$package" "$names" "$result" >>bin/retried.tsv
	done <"$logs/failed"
	[ ! -s "$logs/still" ]
}

# left_out prints the tests of sight that had no data here, and how to run them.
left_out() {
	if [ ! -e bin/sight/sight.json ]; then
		echo "test: left out: all that needs the networks of sight: make sight fetches them"
		return
	fi
	find bin/photos /usr/share/doc/opencv-doc -name vtest.avi 2>/dev/null | grep -q . ||
		echo "test: left out: people and text on the clip (TestPeopleOnClip, TestBoardOnClip): make sight-test"
	[ -d bin/photos/vladmandic-face-api ] || echo "test: left out: 72 photos (TestPhotos): make sight-test"
	[ -e bin/boards/boards.json ] || echo "test: left out: 240 drawn boards and 24 lines (TestDrawnBoards): make sight-test"
}

status=0
commit=$(git rev-parse --short HEAD 2>/dev/null || echo -)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
: >"$logs/fast"
if [ -z "$race" ]; then
	{ fast_tests "$@" ./... || touch "$logs/fast_failed"; } >"$logs/fast" 2>&1 &
fi
# shellcheck disable=SC2086
{ live_tests "$@" $live || touch "$logs/live_failed"; } 2>&1 | tee "$logs/live"
[ -n "$race" ] || wait $!
cat "$logs/fast"
! own_race "$logs/fast" "$logs/live" || status=1
for part in fast live; do
	[ ! -e "$logs/${part}_failed" ] || once_more "$part" "$@" || status=1
done
[ -n "$race" ] || left_out
exit $status
