"""Records the answers of PyTorch that `touchline models check --golden models/nano/golden` compares: 200 looks at generated worlds, in float32 on a CPU.

The pictures are not stored: the world draws them again, by seed and frame.
"""

import gzip
import hashlib
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

import feed
from net import Config, Nano

NANO = feed.ROOT / "models" / "nano"
WIDTH, HEIGHT, FPS = 448, 252, 30
LOOKS, FIRST, FILMS, SECONDS, MOST = 200, 5000, 4, 60, 160
GAP = 1e-3  # smallest lead of a chosen token: below it, rounding chooses


@dataclass
class Look:
    """A prompt and its answer."""

    world: str
    seed: int
    frames: list[int]
    pixels: str  # SHA-256 of the RGB pictures
    system: str
    text: str
    input_ids: list[int]
    output_ids: list[int]  # without the stop token
    answer: str


def load(folder: Path) -> Nano:
    """The checkpoint in float32, int8 rows times their scales."""
    raw, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    sizes = {"vocab": "vocab_size", "queries": "query_num", "layers": "num_hidden_layers", "ffn": "intermediate_size"}
    model = Nano(Config(**{ours: config[name] for ours, name in sizes.items()}))
    weights = {n: w.float() * raw[n + "_scale"].float().view(-1, *[1] * (w.dim() - 1)) if n + "_scale" in raw else w.float()
               for n, w in raw.items() if not n.endswith("_scale")}  # fmt: skip
    model.load_state_dict(weights)
    return model.eval()


def rgb(i420: np.ndarray) -> np.ndarray:
    """[HEIGHT, WIDTH, 3] of a picture, BT.601 in integers, as package check has it."""
    size = WIDTH * HEIGHT
    y = (i420[:size].reshape(HEIGHT, WIDTH).astype(int) - 16) * 298
    u, v = (i420[a : a + size // 4].reshape(HEIGHT // 2, WIDTH // 2).astype(int).repeat(2, 0).repeat(2, 1) - 128 for a in (size, size * 5 // 4))
    return np.clip((np.stack([y + 409 * v, y - 100 * u - 208 * v, y + 516 * u], -1) + 128) >> 8, 0, 255).astype(np.uint8)


def answer(model: Nano, tokens: Tokenizer, ids: list[int], pictures: np.ndarray) -> tuple[list[int], float]:
    """The greedy answer's ids and the smallest lead of a chosen one."""
    end, pad, image_end = (tokens.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>", "</image>"))
    _, seen = model.look(torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1)
    x = model.embed(torch.tensor([ids]), seen, torch.tensor([at for at, i in enumerate(ids) if i == image_end]))
    out: list[int] = []
    lead = float("inf")
    while len(out) < MOST:
        logits: Tensor = model.llm.lm_head(model.llm(x)[0][0, -1])
        best = logits.topk(2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        if (token := int(best.indices[0])) in (end, pad):
            return out, lead
        out.append(token)
        x = torch.cat([x, model.llm.model.embed_tokens(torch.tensor([[token]]))], 1)
    return out, 0.0


def main() -> None:
    """Draws the films, asks and writes the fixture."""
    torch.set_num_threads(1)  # faster on a busy machine, and one order of every sum
    model, looks, path = load(NANO / "checkpoint"), list[Look](), NANO / "checkpoint" / "tokenizer.json"
    tokens = Tokenizer.from_file(str(path))
    with tempfile.TemporaryDirectory() as work:
        films: dict[str, np.ndarray] = {}
        for world in ("match", "yard"):
            command = f"go run ./worlds/render -world {world} -out {work}/{world} -first {FIRST} -seeds {FILMS} -seconds {SECONDS}"
            subprocess.run([*command.split(), "-source", f"{WIDTH}x{HEIGHT}", "-size", f"{WIDTH}x{HEIGHT}"], check=True, cwd=feed.ROOT)
            for seed in range(FIRST, FIRST + FILMS):
                films[f"{world}/{seed}"] = np.memmap(f"{work}/{world}/{seed}.i420", np.uint8, "r").reshape(-1, WIDTH * HEIGHT * 3 // 2)
        prompts = feed.start("looks", data=Path(work), tokenizer=path, queries=model.c.queries, seed=1)
        while len(looks) < LOOKS:
            film = list(films)[len(looks) % len(films)]
            asked = json.loads(feed.ask(prompts, film).readline())
            pictures = np.stack([rgb(films[film][i]) for i in asked["pictures"]])
            with torch.inference_mode():
                out, lead = answer(model, tokens, asked["ids"], pictures)
            if lead > GAP:
                world, number = film.split("/")
                looks.append(Look(world, int(number), asked["frames"], hashlib.sha256(pictures.tobytes()).hexdigest(), asked["system"], asked["text"],
                                  asked["ids"], out, tokens.decode(out, skip_special_tokens=False)))  # fmt: skip
    weights = hashlib.sha256((NANO / "checkpoint" / "model.safetensors").read_bytes()).hexdigest()
    content = {"width": WIDTH, "height": HEIGHT, "fps": FPS, "weights": weights, "looks": [asdict(look) for look in looks]}
    path = NANO / "golden" / "looks" / "nano.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main()
