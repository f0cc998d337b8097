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
[ -x "$render" ] || CGO_ENABLED=0 go build -o "$render" ./worlds/render
[ -x "$EXAMPLES" ] || CGO_ENABLED=0 go build -o "$EXAMPLES" ./worlds/examples

# Films: half of them show another clock and score every two seconds, a quarter is drawn at full size. In half of them more happens. Those of the yard are
# shorter and of its first ten minutes: later, a parcel nearly always lies at the door. Of most films only every third picture is drawn, as far apart as the
# engine looks: what happens in few films is learnt by heart.
draw() { # world, first film, films, seconds of each, folder, more arguments
	world=$1 start=$2 films=$3 seconds=$4 out=$5/$1
	shift 5
	some() { # first film, films, more arguments
		first=$1 count=$2
		shift 2
		"$render" -world "$world" -out "$out" -first $((start + first)) -seeds "$count" -seconds "$seconds" -counter 0.08 "$@"
	}
	some 0 $((films / 2)) -clock-every 10 "$@"
	some $((films / 2)) $((films / 4)) "$@"
	some $((films / 2 + films / 4)) $((films / 4)) -source 1280x720 "$@"
}

match() { # folder, more arguments
	draw match 10000 100 120 "$@" -busy 0.5
	draw match 10100 240 120 "$@" -busy 0.5 -every 3
}

yard() { # folder, more arguments
	draw yard 10000 480 60 "$@" -offset 540 -busy 0.5
	draw yard 10480 2400 60 "$@" -offset 540 -busy 0.5 -every 3
}

train() {
	python3 worlds/train/train.py --data "$work/truth" --pixels "$work/pictures" --out "$work/checkpoint" \
		--tokenizer "$work/tokenizer.json" --seconds "${SECONDS_OF_TRAINING:-1100}" --first-stage 0.16 --workers 14 "$@"
}

[ -e "$work/tokenizer.json" ] || python3 worlds/train/tokenizer.py 2304 "$work/tokenizer.json"
if [ ! -e "$work/drawn" ]; then
	match "$work/truth" -pixels=false
	yard "$work/truth" -pixels=false
	match "$work/pictures" &
	yard "$work/pictures" &
	touch "$work/drawn"
fi
train "$@"
wait
if [ -e "$work/checkpoint/model.safetensors" ]; then
	cp "$work"/checkpoint/* models/nano/checkpoint/
	echo "nano: set its version in inference/nano (the test there has it), and record its answers anew: make nano-golden, on a machine with Go" >&2
fi
