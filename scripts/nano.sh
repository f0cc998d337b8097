#!/bin/sh
# Trains nano from nothing, into models/nano/checkpoint: scripts/nano.sh [option of train.py ...]
#
# It needs an NVIDIA GPU with 141 GB of memory, 16 cores, 100 GB of disk under WORK, and Python with PyTorch, tokenizers,
# safetensors and numpy; Go only where RENDER and EXAMPLES do not name the built programs of models/nano. A training that
# --stop ended goes on from its --state.
set -eu
cd "$(dirname "$0")/.."
work=${WORK:-${TMPDIR:-/tmp}/nano}
render=${RENDER:-$work/render}
EXAMPLES=${EXAMPLES:-$work/examples}
export EXAMPLES
mkdir -p "$work"
[ -x "$render" ] || CGO_ENABLED=0 go build -o "$render" ./models/nano/render
[ -x "$EXAMPLES" ] || CGO_ENABLED=0 go build -o "$EXAMPLES" ./models/nano/examples

# Films: half of them show another clock and score every two seconds, a quarter is drawn at full size. In half of them more happens. Those of the yard are
# shorter and of its first ten minutes: later, a parcel nearly always lies at the door.
draw() { # world, films, seconds of each, folder, more arguments
	world=$1 films=$2 seconds=$3 out=$4/$1
	shift 4
	some() { # first film, films, more arguments
		first=$1 count=$2
		shift 2
		"$render" -world "$world" -out "$out" -first $((10000 + first)) -seeds "$count" -seconds "$seconds" -counter 0.08 "$@"
	}
	some 0 $((films / 2)) -clock-every 10 "$@"
	some $((films / 2)) $((films / 4)) "$@"
	some $((films / 2 + films / 4)) $((films / 4)) -source 1280x720 "$@"
}

train() {
	python3 models/nano/train/train.py --data "$work/truth" --pixels "$work/pictures" --out "$work/checkpoint" \
		--tokenizer "$work/tokenizer.json" --seconds "${SECONDS_OF_TRAINING:-1100}" --first-stage 0.16 --workers 14 "$@"
}

[ -e "$work/tokenizer.json" ] || python3 models/nano/train/tokenizer.py 2304 "$work/tokenizer.json"
if [ ! -e "$work/drawn" ]; then
	draw match 240 120 "$work/truth" -busy 0.5 -pixels=false
	draw yard 1300 60 "$work/truth" -offset 540 -busy 0.5 -pixels=false
	draw match 240 120 "$work/pictures" -busy 0.5 &
	draw yard 1300 60 "$work/pictures" -offset 540 -busy 0.5 &
	touch "$work/drawn"
fi
train "$@"
wait
if [ -e "$work/checkpoint/model.safetensors" ]; then
	cp "$work"/checkpoint/* models/nano/checkpoint/
	echo "nano: record its answers anew: make nano-golden, on a machine with Go" >&2
fi
