#!/usr/bin/env python3
"""Times the official sound of MiniCPM-o 4.5's voice in PyTorch, for comparison: the flow and HiFT modules of minicpmo-utils 1.0.5 as
its Token2wav.stream uses them, with the published shapes, random weights, and the codes of `touchline-model bench model`.

    echo "minicpmo-utils==1.0.5 --hash=sha256:4ced308894ec06c37574342d889aa30ce0c2e0e1859ef9be225af3b4461937df" > utils.txt
    pip download --no-deps --no-binary=:all: --require-hashes -r utils.txt && tar xzf minicpmo_utils-1.0.5.tar.gz
    python3 bench/official_voice.py --source minicpmo_utils-1.0.5/src/stepaudio2 [--prompt 150] [--runs 15] [--cpu] > voice.json

Needs torch and einops. Prints one JSON object: milliseconds for a second of sound of one room, from codes to samples on the
host. The modules have no batches: buffers of the flow are for one room. --cpu tries the program.
"""
import argparse
import importlib.machinery
import json
import os
import statistics
import sys
import time
import types

import numpy as np
import torch

SILENCE, CACHED = 4218, 8  # the code of silence; frames that the vocoder keeps
WINDOW = 28                # codes, of which 25 become sound


def packages(source):
    """Makes the modules importable without the package's own __init__, which needs torchaudio, s3tokenizer and more."""
    for name in ("stepaudio2", "stepaudio2.flashcosyvoice"):
        m = types.ModuleType(name)
        m.__path__ = [os.path.join(source, *name.split(".")[1:])]
        sys.modules[name] = m
    try:
        import onnxruntime  # noqa: F401: imported by the flow, and not used
    except ImportError:
        m = sys.modules["onnxruntime"] = types.ModuleType("onnxruntime")
        m.__spec__ = importlib.machinery.ModuleSpec("onnxruntime", None)
    try:
        import scipy.signal  # noqa: F401
    except ImportError:  # the vocoder's only use of it
        m = types.ModuleType("scipy.signal")
        m.get_window = lambda kind, n, fftbins=True: np.hanning(n + 1)[:-1]
        sys.modules["scipy"] = types.ModuleType("scipy")
        sys.modules["scipy.signal"] = m


def modules():
    """The flow with the settings of the published flow.yaml, and the vocoder with its own."""
    from stepaudio2.cosyvoice2.flow.decoder_dit import DiT
    from stepaudio2.cosyvoice2.flow.flow import CausalMaskedDiffWithXvec
    from stepaudio2.cosyvoice2.flow.flow_matching import CausalConditionalCFM
    from stepaudio2.cosyvoice2.transformer.upsample_encoder_v2 import UpsampleConformerEncoderV2
    from stepaudio2.flashcosyvoice.modules.hifigan import HiFTGenerator

    encoder = UpsampleConformerEncoderV2(
        input_size=512, output_size=512, input_layer="linear", pre_lookahead_len=3, num_blocks=6, num_up_blocks=4, up_stride=2,
        up_scale_factor=2, attention_heads=8, pos_enc_layer_type="rel_pos_espnet", selfattention_layer_type="rel_selfattn",
        key_bias=True, linear_units=2048, dropout_rate=0.1, positional_dropout_rate=0.1, attention_dropout_rate=0.1,
        normalize_before=True)
    dit = DiT(in_channels=320, out_channels=80, mlp_ratio=4.0, depth=16, num_heads=8, head_dim=64, hidden_size=512)
    flow = CausalMaskedDiffWithXvec(
        input_size=512, output_size=80, spk_embed_dim=192, vocab_size=6561, encoder=encoder,
        decoder=CausalConditionalCFM(estimator=dit, inference_cfg_rate=0.7))
    return flow, HiFTGenerator()


class Stream:
    """Token2wav.stream, without the preparation of a prompt's sound."""

    def __init__(self, flow, hift, device, half, prompt):
        self.flow, self.hift, self.device, self.half = flow, hift, device, half
        self.frames = 2 * prompt
        self.window = torch.from_numpy(np.hamming(2 * CACHED * 480)).to(device)
        codes = torch.tensor([[k * 331 % 6561 for k in range(prompt)] + [SILENCE] * 3], device=device)
        self.speaker = torch.randn(1, 192, device=device)
        mel = torch.randn(1, self.frames, 80, device=device)
        with self.cast():
            self.cache = flow.setup_cache(codes, mel, self.speaker, n_timesteps=10)
        self.kept = {"mel": torch.zeros(1, 80, 0, device=device), "source": torch.zeros(1, 1, 0, device=device),
                     "speech": torch.zeros(1, 0, device=device)}

    def cast(self):
        return torch.amp.autocast(self.device, dtype=torch.float16, enabled=self.half)

    def chunk(self, codes):
        codes = torch.tensor([codes], dtype=torch.int32, device=self.device)
        with self.cast():
            mel, self.cache = self.flow.inference_chunk(token=codes, spk=self.speaker, cache=self.cache, last_chunk=False, n_timesteps=10)
        for name, axis in (("estimator_att_cache", 4), ("conformer_att_cache", 3)):
            old = self.cache[name]
            if old.shape[axis] > self.frames + 100:
                self.cache[name] = torch.cat([old.narrow(axis, 0, self.frames), old.narrow(axis, old.shape[axis] - 100, 100)], dim=axis)
        mel = torch.concat([self.kept["mel"], mel], dim=2)
        speech, source = self.hift(mel, self.kept["source"])
        before, n = self.kept["speech"], CACHED * 480
        if before.shape[-1]:
            speech = speech.clone()
            speech[..., :n] = speech[..., :n] * self.window[:n] + before[..., -n:] * self.window[n:]
        self.kept = {"mel": mel[..., -CACHED:].clone(), "source": source[:, :, -n:].clone(), "speech": speech[:, -n:].clone()}
        return speech[:, :-n].cpu().numpy()


@torch.inference_mode()
def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--source", required=True, help="the folder stepaudio2 of the package's source")
    ap.add_argument("--prompt", type=int, default=150, help="codes of the reference sound: 25 a second")
    ap.add_argument("--runs", type=int, default=15)
    ap.add_argument("--cpu", action="store_true", help="to try this program")
    a = ap.parse_args()
    device = "cpu" if a.cpu else "cuda"
    if not a.cpu and not torch.cuda.is_available():
        sys.exit("no CUDA device: run this on a machine with an NVIDIA GPU")
    packages(a.source)
    torch.manual_seed(0)
    found = {"engine": "minicpmo-utils 1.0.5", "torch": torch.__version__, "prompt_codes": a.prompt,
             "device": torch.cuda.get_device_name(0) if device == "cuda" else "cpu"}
    for half in (False,) if a.cpu else (False, True):
        name = "float16" if half else "float32"
        try:
            flow, hift = modules()
            if half:
                flow.half()
            flow, hift = flow.to(device).eval(), hift.to(device).eval()
            stream = Stream(flow, hift, device, half, a.prompt)
            took = []
            for i in range(a.runs + 3):
                codes = [(k + 25 * i) * 331 % 6561 for k in range(WINDOW)]
                if device == "cuda":
                    torch.cuda.synchronize()
                begin = time.perf_counter()
                wave = stream.chunk(codes)
                took.append(1e3 * (time.perf_counter() - begin))
                if i and wave.shape[-1] != 24000:
                    raise ValueError(f"expected 24000 samples, has {wave.shape[-1]}")
            took = sorted(took[3:])
            found[name] = {"median": round(statistics.median(took), 2), "p05": round(took[len(took) // 20], 2),
                           "p95": round(took[min(len(took) - 1, len(took) * 95 // 100)], 2)}
            if device == "cuda":
                found[name]["memory_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
        except Exception as e:  # noqa: BLE001: the other row counts too
            found[name] = {"error": f"{type(e).__name__}: {e}"[:300]}
        print(name, found[name], file=sys.stderr, flush=True)
    print(json.dumps(found))


main()
