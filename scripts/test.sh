#!/bin/sh
# Runs the Go tests, in three parts, and fails when one of them does. Arguments go to go test.
#
# Packages with a LiveKit server in their tests run in real time and wait most of it; most of the others compute,
# and are done before, so that they disturb nothing. Two packages run at once, and of each the tests that say so.
# What measures alignment has the machine to itself, at the end.
set -eu
cd "$(dirname "$0")/.."
export TOUCHLINE_BIN="$PWD/bin"

measures=touchline/cmd/touchline-bench
# By what they depend on, so that no list has to be kept; in an order that has the longest ones first.
live=$(go list -test -f '{{if .ForTest}}{{range .Deps}}{{if eq . "touchline/agent/sfu"}}{{$.ForTest}}{{end}}{{end}}{{end}}' ./... |
	sort -ru | grep -vxF "$measures")
others=$(go list ./... | grep -vxF "$live" | grep -vxF "$measures")
if [ -z "$live" ]; then
	echo "test: expected packages whose tests depend on agent/sfu, found none" >&2
	exit 1
fi

status=0
for packages in "$others" "$live" "$measures"; do
	# shellcheck disable=SC2086
	go test -vet=off -timeout 25m -p 2 -parallel 4 "$@" $packages || status=1
done
exit $status
