"""Writes nano as an AWQ checkpoint ("gemm" layout): python3 awq.py FOLDER [group]. The decoder's layers get 4 bits with zero points, rounded to the
nearest, without AWQ's search for scales; everything else is float16."""

import json
import shutil
import sys
from pathlib import Path

import torch
from golden import NANO, load
from safetensors.torch import save_file
from torch import Tensor

ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # of the outputs in a word, from the low bits


def pack(values: Tensor) -> Tensor:
    """[rows, outputs] of 0..15 to int32 [rows, outputs/8]."""
    words = (values.long().view(len(values), -1, 8)[..., ORDER] << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def quantise(weight: Tensor, group: int) -> dict[str, Tensor]:
    """The parts of a linear layer [outputs, inputs], with a scale and a zero point for each group of inputs."""
    w = weight.T.reshape(-1, group, len(weight))
    low, high = w.amin(1).clamp(max=0), w.amax(1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-6).to(torch.float16)
    zeros = (-low / scales.float()).round().clamp(0, 15)
    values = (w / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
    return {"qweight": pack(values.flatten(0, 1)), "qzeros": pack(zeros), "scales": scales}


def main() -> None:
    """Reads nano's checkpoint and writes the folder."""
    folder, group = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 64
    shutil.copytree(NANO / "checkpoint", folder)
    tensors: dict[str, Tensor] = {}
    for name, w in load(folder).state_dict().items():
        if name.startswith("llm.model.layers.") and name.endswith("_proj.weight"):
            tensors |= {name.removesuffix("weight") + part: t for part, t in quantise(w, group).items()}
        else:
            tensors[name] = w.to(torch.float16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": group, "zero_point": True,
                                     "modules_to_not_convert": None}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
