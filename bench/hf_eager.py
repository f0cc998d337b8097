#!/usr/bin/env python3
"""Times the work of one cycle in Hugging Face transformers, for comparison: a Qwen3-8B-shaped decoder and a
SigLIP-so400m-shaped tower with a resampler, random bfloat16 weights, eager mode, one stream.

    python3 bench/hf_eager.py [--runs 30] [--layers 36] > hf.json

Needs torch with CUDA and transformers >= 4.51. Prints one JSON object; times are medians in
milliseconds. It downloads nothing, because only the shapes are the model's.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import transformers
from torch import nn
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM, SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipEncoder


class Vision(nn.Module):
    """26 encoder layers over patches of 14x14 pixels, then 64 queries that attend to them."""

    def __init__(self, layers: int):
        super().__init__()
        cfg = SiglipVisionConfig(hidden_size=1152, intermediate_size=4304, num_hidden_layers=layers,
                                 num_attention_heads=16, image_size=980, patch_size=14)
        cfg._attn_implementation = "sdpa"
        self.patch = nn.Linear(588, 1152)
        self.position = nn.Embedding(4900, 1152)
        self.encoder = SiglipEncoder(cfg)
        self.post = nn.LayerNorm(1152, eps=1e-6)
        self.kv = nn.Linear(1152, 4096, bias=False)
        self.norm_kv, self.norm_q, self.norm_out = (nn.LayerNorm(4096, eps=1e-6) for _ in range(3))
        self.query = nn.Parameter(torch.randn(64, 4096) * 0.02)
        self.attention = nn.MultiheadAttention(4096, 32, batch_first=True)
        self.out = nn.Linear(4096, 4096, bias=False)

    def forward(self, patches, ids, place):
        x = self.patch(patches) + self.position(ids)
        x = self.post(self.encoder(inputs_embeds=x).last_hidden_state)
        kv = self.norm_kv(self.kv(x))
        q = self.norm_q(self.query).expand(len(x), -1, -1)
        y, _ = self.attention(q, kv + place, kv, need_weights=False)
        return self.out(self.norm_out(y))


def median_ms(runs, work):
    """Median and 5th to 95th percentile over runs, after three to warm up."""
    times = []
    for i in range(runs + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(1e3 * (time.perf_counter() - start))
    times.sort()
    return {"median": round(statistics.median(times), 2), "p05": round(times[len(times) // 20], 2),
            "p95": round(times[-1 - len(times) // 20], 2)}


@torch.inference_mode()
def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--runs", type=int, default=30)
    ap.add_argument("--cycles", type=int, default=10)
    ap.add_argument("--layers", type=int, default=36)
    ap.add_argument("--vision-layers", type=int, default=26)
    ap.add_argument("--prompt", type=int, default=414)
    ap.add_argument("--answer", type=int, default=40)
    a = ap.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: run this on a machine with an NVIDIA GPU")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        cfg = Qwen3Config(vocab_size=151748, hidden_size=4096, intermediate_size=12288, num_hidden_layers=a.layers,
                          num_attention_heads=32, num_key_value_heads=8, head_dim=128, rope_theta=1e6,
                          tie_word_embeddings=False)
        cfg._attn_implementation = "sdpa"
        llm = Qwen3ForCausalLM(cfg).eval()
        vision = Vision(a.vision_layers).eval()
        ids = (torch.arange(24).repeat_interleave(43) * 70 + torch.arange(43).repeat(24)).long()
        place = torch.randn(1032, 4096)
        frames = torch.randn(4, 1032, 588)
        prompt = torch.randn(1, a.prompt, 4096) * 0.02

    def cycle(first_only=False):
        # Only the newest frame is embedded; the three before it already are.
        newest = vision(frames[:1], ids, place)
        prompt[:, 200:264] = newest
        cache = DynamicCache()
        token = llm(inputs_embeds=prompt, past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1)
        token.item()
        if first_only:
            return
        for _ in range(a.answer - 1):
            token = llm(input_ids=token[None], past_key_values=cache, logits_to_keep=1).logits[:, -1].argmax(-1)
            token.item()

    def prefill():
        llm(inputs_embeds=prompt, past_key_values=DynamicCache(), logits_to_keep=1)

    result = {"engine": f"transformers {transformers.__version__} eager bf16", "torch": torch.__version__,
              "device": torch.cuda.get_device_name(0)}
    result["vision_1_ms"] = median_ms(a.runs, lambda: vision(frames[:1], ids, place))
    result["vision_4_ms"] = median_ms(a.runs, lambda: vision(frames, ids, place))
    result["prefill_ms"] = median_ms(a.runs, prefill)
    result["first_token_ms"] = median_ms(a.runs, lambda: cycle(True))
    result["cycle_ms"] = median_ms(a.cycles, cycle)
    step = (result["cycle_ms"]["median"] - result["first_token_ms"]["median"]) / (a.answer - 1)
    result["decode_tok_s"] = round(1e3 / step, 1)
    print(json.dumps(result))


main()
