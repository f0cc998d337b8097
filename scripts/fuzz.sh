#!/bin/sh
# Runs the fuzz targets, one after the other. usage: scripts/fuzz.sh [TIME [I/N]]
#
# TIME (default 20s) is the time of a target that reads bytes from a network, of people, of a child or of foreign media; a fifth of it is
# the time of the others. I/N is the part of the targets to run, as 1/4. An interrupted run continues with the target that it was at:
# bin/fuzz/TIME has a line for each finished one, until all of its part are finished. What Go finds is kept in its build cache.
#
# The lines have package, target, seconds, executions, new inputs, result. All of them are appended to bin/fuzz/all.tsv as well.
set -eu
cd "$(dirname "$0")/.."
time=${1:-20s}
part=${2:-1/1}

seconds() {
	case $1 in
	*h) echo $((${1%h} * 3600)) ;;
	*m) echo $((${1%m} * 60)) ;;
	*) echo "${1%s}" ;;
	esac
}

case $part in
[1-9]*/[1-9]*) ;;
*) echo "fuzz: part \"$part\": expected I/N, as 1/4" >&2; exit 2 ;;
esac
long=$(seconds "$time")
short=$(((long + 4) / 5))
done=bin/fuzz/$time
tags=-tags=nolibopusfile,builtinassets,integration
mkdir -p "$done"

# time_of prints the seconds of a package's targets: these read files of this machine, and decoded pictures and sound.
time_of() {
	case $1 in
	./agent/history | ./configs | ./inference | ./inference/minicpmo/* | ./inference/vad | ./inference/internal/vision | \
		./internal/resample | ./models | ./models/onnx | ./models/safetensors | ./models/sight | ./worlds*)
		echo "$short"
		;;
	*) echo "$long" ;;
	esac
}

targets() {
	grep -rE --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9]*\(' . |
		sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9]*).*|\1 \2|' | LC_ALL=C sort -u |
		awk -v i="${part%/*}" -v n="${part#*/}" 'NR % n == i % n'
}

mark() { echo "$done/$(echo "$1-$2" | tr ./ __)"; }

# fuzz runs a target and writes its line. Until Go 1.27 the end of the time may pass for a failure (go.dev/issue/75804); a true
# one fails again, on the input that Go has kept in testdata.
fuzz() {
	log=bin/fuzz/$(basename "$(mark "$1" "$2")").log
	result=passed
	t=$(time_of "$1")
	if ! go test -vet=off "$tags" -run '^$' -fuzz "^$2\$" -fuzztime "${t}s" -fuzzminimizetime 10x "$1" >"$log" 2>&1; then
		if ! grep -q 'context deadline exceeded' "$log" || ! go test -vet=off "$tags" -run "^$2\$" "$1" >>"$log" 2>&1; then
			result=FAILED
		fi
	elif grep -q 'no fuzz tests to fuzz' "$log"; then
		result=FAILED
	fi
	counts=$(grep -oE 'execs: [0-9]+|new interesting: [0-9]+' "$log" | grep -oE '[0-9]+' | tail -2 | tr '\n' '\t')
	printf '%s\t%s\t%s\t%s%s\n' "$1" "$2" "$t" "${counts:-0	0	}" "$result" | tee -a bin/fuzz/all.tsv >"$(mark "$1" "$2").new"
	mv "$(mark "$1" "$2").new" "$(mark "$1" "$2")"
	cat "$(mark "$1" "$2")"
	if [ $result = FAILED ]; then tail -40 "$log"; fi
}

trap 'echo "fuzz: interrupted; the same command continues" >&2; exit 130' INT TERM
all=$(targets)
echo "$all" | while read -r package target; do
	if [ ! -e "$(mark "$package" "$target")" ]; then fuzz "$package" "$target" </dev/null; fi
done

echo "$all" | while read -r package target; do
	cat "$(mark "$package" "$target")"
	rm "$(mark "$package" "$target")"
done >"$done.tsv"
awk -F '\t' '{ runs += $4; if ($6 != "passed") { failed++; names = names " " $2 } }
	END { printf "fuzz: %d targets, %.0f executions, %d failed%s\n", NR, runs, failed, names; exit failed > 0 }' "$done.tsv"
