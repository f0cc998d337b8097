#!/bin/sh
# Times the model on this machine's GPU: bundles of the real shape with random weights, then the same work in Hugging
# Face transformers where PyTorch with CUDA is there, then the bench, with both in one table.
# usage: scripts/bench-gpu.sh [flags of `touchline-model bench model`]
#   MODEL_DIR  folder for the bundles (about 28 GB), kept for the next time; a temporary one without
#   BENCH_OUT  file for the table; bin/bench-gpu.md without
#   PYTHON     the Python that has PyTorch and transformers; python3 without
#   TOUCHLINE_ORT  another ONNX Runtime than that in bin/runtime
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
tool=$here/bin/touchline-model
out=${BENCH_OUT:-$here/bin/bench-gpu.md}
python=${PYTHON:-python3}

say() { echo "bench-gpu: $*" >&2; }

[ -x "$tool" ] || { say "there is no $tool: make models builds it"; exit 1; }
if [ -n "${MODEL_DIR:-}" ]; then
	dir=$MODEL_DIR
	mkdir -p "$dir"
	hf=$(mktemp)
	trap 'rm -f "$hf"' EXIT INT TERM
else
	dir=$(mktemp -d "${TMPDIR:-/tmp}/touchline-bench.XXXXXX")
	hf=$dir/hf.json
	trap 'rm -rf "$dir"' EXIT INT TERM
fi

# A bundle is whole or not there at all.
synth() {
	[ -e "$1/manifest.json" ] && return
	say "making $1"
	bundle=$1
	shift
	"$tool" models synth --shape minicpm-o-4.5 "$bundle" --device cuda "$@"
}
synth "$dir/head8" --weights int4,fp16 --head 8
synth "$dir/head4" --weights int4 --head 4

compare=
if "$python" -c 'import sys, torch, transformers; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	say "timing transformers"
	if "$python" "$here/bench/hf_eager.py" >"$hf"; then
		compare=$hf
	else
		say "transformers failed: the table has no column for it"
	fi
else
	say "there is no PyTorch with CUDA and transformers here (PYTHON): the table has no column for it"
fi

set -- bench model "$dir/head8" --head-4 "$dir/head4" ${compare:+--compare "$compare"} --out "$out" "$@"
say "touchline-model $*"
"$tool" "$@"
say "the table is in $out"
