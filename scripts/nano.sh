#!/bin/sh
# Trains nano from nothing, into models/nano/checkpoint: scripts/nano.sh [option of train.py ...]
#
# It needs an NVIDIA GPU with 80 GB of memory, 16 cores, 50 GB of disk under WORK, and Python with PyTorch, tokenizers,
# safetensors and numpy; Go only where RENDER names no program. A training that --stop ended goes on from its --state.
set -eu
cd "$(dirname "$0")/.."
work=${WORK:-${TMPDIR:-/tmp}/nano}
render=${RENDER:-$work/render}
mkdir -p "$work"
[ -x "$render" ] || go build -o "$render" ./models/nano/render

# Films of a world: half of them show another clock and score every four seconds, a quarter is drawn at full size.
draw() { # world, folder, more arguments
	world=$1 out=$2/$1
	shift 2
	"$render" -world "$world" -out "$out" -first 10000 -seeds 108 -seconds 120 -counter 0.08 -clock-every 20 "$@"
	"$render" -world "$world" -out "$out" -first 10108 -seeds 56 -seconds 120 -counter 0.08 "$@"
	"$render" -world "$world" -out "$out" -first 10164 -seeds 56 -seconds 120 -counter 0.08 -source 1280x720 "$@"
}

train() {
	python3 models/nano/train/train.py --data "$work/truth" --pixels "$work/pictures" --out "$work/checkpoint" \
		--tokenizer "$work/tokenizer.json" --seconds "${SECONDS_OF_TRAINING:-1200}" --first-stage 0.15 --workers 12 "$@"
}

[ -e "$work/tokenizer.json" ] || python3 models/nano/train/tokenizer.py 2304 "$work/tokenizer.json"
if [ ! -e "$work/drawn" ]; then
	draw match "$work/truth" -pixels=false
	draw yard "$work/truth" -pixels=false
	draw match "$work/pictures" &
	draw yard "$work/pictures" &
	touch "$work/drawn"
fi
train "$@"
wait
if [ -e "$work/checkpoint/model.safetensors" ]; then
	cp "$work"/checkpoint/* models/nano/checkpoint/
	echo "nano: record its answers anew: make nano-golden, on a machine with Go" >&2
fi
