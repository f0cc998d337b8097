#!/bin/sh
# Times the built-in model on this machine's GPU, with random weights of the real shape, and the same work in Hugging Face
# transformers if PyTorch with CUDA is installed. Both are in one table. Speech recognition has a table for each of its two sizes,
# and one beside the commentary of 64 rooms.
# usage: scripts/bench-gpu.sh [flags of `touchline-model bench model`]
#   MODEL_DIR  folder that keeps the bundles (about 36 GB); default: a temporary one
#   BENCH_OUT  file for the table; default: bin/bench-gpu.md
#   PYTHON     a Python with PyTorch and transformers; default: python3
#   TOUCHLINE_ORT  ONNX Runtime; default: bin/runtime
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
tool=$here/bin/touchline-model
out=${BENCH_OUT:-$here/bin/bench-gpu.md}
python=${PYTHON:-python3}

say() { echo "bench-gpu: $*" >&2; }

[ -x "$tool" ] || { say "no $tool: run make models"; exit 1; }
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

# A bundle with a manifest is complete.
synth() {
	shape=$1 bundle=$2
	shift 2
	[ -e "$bundle/manifest.json" ] && return
	say "making $bundle"
	"$tool" models synth --shape "$shape" "$bundle" --device cuda "$@"
}
synth minicpm-o-4.5 "$dir/head8" --weights int4,fp16 --head 8 --speech
synth minicpm-o-4.5 "$dir/head4" --weights int4 --head 4
for size in 0.6b 1.7b; do
	synth qwen3-asr-$size "$dir/asr-$size" --weights fp16
done
synth qwen3-aligner-0.6b "$dir/aligner" --weights fp16

compare=
if "$python" -c 'import sys, torch, transformers; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	say "timing transformers"
	if "$python" "$here/bench/hf_eager.py" >"$hf"; then
		compare=$hf
	else
		say "transformers failed: no column for it in the table"
	fi
else
	say "no PyTorch with CUDA and transformers (PYTHON): no column for it in the table"
fi

set -- bench model "$dir/head8" --head-4 "$dir/head4" ${compare:+--compare "$compare"} --out "$out" "$@"
say "touchline-model $*"
"$tool" "$@"
for size in 0.6b 1.7b; do
	other=
	if [ -n "$compare" ] && "$python" "$here/bench/hf_asr.py" --size $size >"$hf.asr"; then
		other=$hf.asr
	else
		say "no column of transformers for qwen3-asr-$size: it needs PyTorch with CUDA and transformers 5.17"
	fi
	"$tool" bench model "$dir/asr-$size" --aligner "$dir/aligner" ${other:+--compare "$other"} --out "${out%.md}-asr-$size.md"
	rm -f "$hf.asr"
done
"$tool" bench model "$dir/head8" --ears "$dir/asr-0.6b" --rooms 64 --out "${out%.md}-beside.md"
say "the tables are in $out, ${out%.md}-asr-*.md and ${out%.md}-beside.md"
