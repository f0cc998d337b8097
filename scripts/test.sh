#!/bin/sh
# Runs the Go tests, in two parts, and fails when one of them does. Arguments go to go test.
#
# Packages with a LiveKit server in their tests run in real time and wait most of it; most of the others compute,
# and are done before, so that they disturb nothing. Two packages run at once, and of each the tests that say so.
set -eu
cd "$(dirname "$0")/.."
export TOUCHLINE_BIN="$PWD/bin"

# By what they depend on, so that no list has to be kept; in an order that has the longest ones first.
live=$(go list -test -f '{{if .ForTest}}{{range .Deps}}{{if eq . "touchline/agent/sfu"}}{{$.ForTest}}{{end}}{{end}}{{end}}' ./... |
	sort -ru)
others=$(go list ./... | grep -vxF "$live")
if [ -z "$live" ]; then
	echo "test: expected packages whose tests depend on agent/sfu, found none" >&2
	exit 1
fi

status=0
# shellcheck disable=SC2086
go test -vet=off -timeout 25m -p 2 -parallel 4 "$@" $others || status=1
# shellcheck disable=SC2086
go test -vet=off -timeout 25m -p 2 -parallel 4 "$@" $live || status=1
exit $status
