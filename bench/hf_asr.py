#!/usr/bin/env python3
"""Times speech recognition in Hugging Face transformers, for comparison: its port of Qwen3-ASR (models/qwen3_asr) with the
published shapes, random bfloat16 weights, eager mode with SDPA. One process, batches of equal clips.

    python3 bench/hf_asr.py [--size 0.6b|1.7b] [--runs 5] [--batch 64] [--tiny] > asr.json

Needs torch and a transformers that has the port (5.17 has it). Prints one JSON object, with features included. It downloads nothing, because only the shapes are the model's.
"""
import argparse
import json
import statistics
import sys
import time

import numpy
import torch
import transformers
from transformers.models.qwen3_asr.configuration_qwen3_asr import Qwen3ASRConfig
from transformers.models.qwen3_asr.feature_extraction_qwen3_asr import Qwen3ASRFeatureExtractor
from transformers.models.qwen3_asr.modeling_qwen3_asr import (
    Qwen3ASRForConditionalGeneration,
    Qwen3ASRForTokenClassification,
)

RATE, AUDIO = 16000, 151676
SIZES = {  # encoder: layers, heads, width, inner width; decoder: width, inner width
    "0.6b": ((18, 14, 896, 3584), (1024, 3072)),
    "1.7b": ((24, 16, 1024, 4096), (2048, 6144)),
    "aligner": ((24, 16, 1024, 4096), (1024, 3072)),
}


def config(size, tiny, **more):
    (layers, heads, width, inner), (hidden, ffn) = SIZES[size]
    return Qwen3ASRConfig(
        audio_config={"encoder_layers": 1 if tiny else layers, "encoder_attention_heads": heads, "d_model": width,
                      "encoder_ffn_dim": inner, "output_dim": hidden},
        text_config={"model_type": "qwen3", "vocab_size": 151936, "hidden_size": hidden, "intermediate_size": ffn,
                     "num_hidden_layers": 1 if tiny else 28, "num_attention_heads": 16, "num_key_value_heads": 8,
                     "head_dim": 128, "max_position_embeddings": 65536, "tie_word_embeddings": True},
        eos_token_id=[151643, 151645], pad_token_id=151645, **more)


def build(kind, cfg, device):
    cfg._attn_implementation = "sdpa"
    with torch.device(device):
        return kind(cfg).eval()


def times(runs, work, device):
    """All times of the runs after two to warm up."""
    took = []
    for i in range(runs + 2):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        if i >= 2:
            took.append(1e3 * (time.perf_counter() - start))
    return sorted(took)


def row(took, seconds):
    """What `touchline-model bench model --compare` shows is "median": x real time of so many seconds of sound, else the 95th
    percentile in ms, as the rows have it."""
    median, p95 = statistics.median(took), took[min(len(took) - 1, len(took) * 95 // 100)]
    return {"median": round(1e3 * seconds / median if seconds else p95, 2), "median_ms": round(median, 2), "p95_ms": round(p95, 2)}


@torch.inference_mode()
def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--size", choices=("0.6b", "1.7b"), default="0.6b")
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--tiny", action="store_true", help="one layer each, on the CPU: to try this program")
    a = ap.parse_args()
    device = "cpu" if a.tiny else "cuda"
    if not a.tiny and not torch.cuda.is_available():
        sys.exit("no CUDA device: run this on a machine with an NVIDIA GPU")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = build(Qwen3ASRForConditionalGeneration, config(a.size, a.tiny), device)
    extractor = Qwen3ASRFeatureExtractor()
    random = numpy.random.default_rng(0)

    def inputs(clips, marks=0):
        """Features and prompt of equal clips, as the package makes them: sound between a few ids."""
        f = extractor(clips, sampling_rate=RATE, return_tensors="pt", padding=True, return_attention_mask=True)
        names = {k for k in f if "mask" in k}
        mask = f[names.pop()].to(device)
        x = f["input_features"].to(device, torch.bfloat16)
        short = -x.shape[-1] % 100
        if short:
            x, mask = torch.nn.functional.pad(x, (0, short)), torch.nn.functional.pad(mask, (0, short))
        rows = int(model.model.audio_tower._post_cnn_length(mask.view(len(clips), -1, 100).sum(-1).long()).sum(-1)[0])
        ids = [1] * 9 + [AUDIO] * rows + [2] * (6 + marks)
        ids = torch.tensor([ids] * len(clips), device=device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "input_features": x, "input_features_mask": mask}

    def hear(clips, tokens):
        return model.generate(**inputs(clips), do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens)

    def sounds(n, seconds):
        return [(random.standard_normal(int(seconds * RATE)) * .1).astype("float32") for _ in range(n)]

    found = {"engine": f"transformers {transformers.__version__} bf16 sdpa", "torch": torch.__version__, "size": a.size,
             "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu"}

    def measure(name, runs, work, seconds=0):
        try:
            found[name] = row(times(runs, work, device), seconds)
        except Exception as e:  # noqa: BLE001: the other rows count too
            found[name] = {"error": f"{type(e).__name__}: {e}"[:300]}
        print(name, found[name], file=sys.stderr, flush=True)

    one, many = sounds(1, 30), sounds(a.batch, 30)
    measure("clip_30s_1", a.runs, lambda: hear(one, 100), 30)
    measure(f"clip_30s_{a.batch}", 2, lambda: hear(many, 100), 30 * a.batch)
    one, many = sounds(1, 10), sounds(a.batch, 10)
    measure("first_10s_1", a.runs, lambda: hear(one, 1))
    measure(f"first_10s_{a.batch}", a.runs, lambda: hear(many, 1))
    one = sounds(1, 8)
    measure("live_8s_1", a.runs, lambda: hear(one, 8))
    if a.size == "0.6b":
        aligner = build(Qwen3ASRForTokenClassification, config("aligner", a.tiny, num_labels=5000), device)
        minute = sounds(1, 60)
        measure("align_60s", a.runs, lambda: aligner(**inputs(minute, marks=40)).logits.argmax(-1).tolist(), 60)
    print(json.dumps(found))


main()
