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
from torch import Tensor

import examples
import words
from net import Config, Nano

ROOT = Path(__file__).parents[3]
NANO = ROOT / "models" / "nano"
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


def answer(model: Nano, prompts: examples.Prompts, ids: list[int], pictures: np.ndarray) -> tuple[list[int], float]:
    """The greedy answer's ids and the smallest lead of a chosen one."""
    _, seen = model.look(torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1)
    x = model.embed(torch.tensor([ids]), seen, torch.tensor([at for at, i in enumerate(ids) if i == prompts.image_end]))
    out: list[int] = []
    lead = float("inf")
    while len(out) < MOST:
        logits: Tensor = model.llm.lm_head(model.llm(x)[0][0, -1])
        best = logits.topk(2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        if (token := int(best.indices[0])) in (prompts.end, prompts.pad):
            return out, lead
        out.append(token)
        x = torch.cat([x, model.llm.model.embed_tokens(torch.tensor([[token]]))], 1)
    return out, 0.0


def main() -> None:
    """Draws the films, asks and writes the fixture."""
    torch.set_num_threads(1)  # faster on a busy machine, and one order of every sum
    model, rng, looks = load(NANO / "checkpoint"), words.Random(1), list[Look]()
    prompts = examples.Prompts(str(NANO / "checkpoint" / "tokenizer.json"), model.c.queries)
    with tempfile.TemporaryDirectory() as work:
        films: dict[tuple[str, int], tuple[examples.Film, list[int], np.ndarray]] = {}
        for name, world in examples.WORLDS.items():
            command = f"go run ./models/nano/render -world {name} -out {work}/{name} -first {FIRST} -seeds {FILMS} -seconds {SECONDS}"
            subprocess.run([*command.split(), "-source", f"{WIDTH}x{HEIGHT}", "-size", f"{WIDTH}x{HEIGHT}"], check=True, cwd=ROOT)
            for seed in range(FIRST, FIRST + FILMS):
                lines = Path(f"{work}/{name}/{seed}.jsonl").read_text().splitlines()
                pixels = np.memmap(f"{work}/{name}/{seed}.i420", np.uint8, "r").reshape(len(lines), -1)
                films[name, seed] = examples.Film(world, world.facts(lines)[0]), [json.loads(line)["frame"] for line in lines], pixels
        while len(looks) < LOOKS:
            name, seed = list(films)[len(looks) % len(films)]
            film, frames, pixels = films[name, seed]
            count, step = rng.weighted([4, 2, 1, 8], [5, 2, 2, 2]), rng.choice([1, 2, 3])
            i = film.pick(rng, step * (count - 1))
            t, at = examples.make(rng, examples.setting(rng), film, i, count, step), [i - step * j for j in reversed(range(count))]
            pictures = np.stack([rgb(pixels[j]) for j in at])
            ids = prompts.ids(t, count)
            with torch.inference_mode():
                out, lead = answer(model, prompts, ids, pictures)
            if lead > GAP:
                looks.append(Look(name, seed, [frames[j] for j in at], hashlib.sha256(pictures.tobytes()).hexdigest(), t.system, t.text,
                                  ids, out, prompts.tok.decode(out, skip_special_tokens=False)))  # fmt: skip
    weights = hashlib.sha256((NANO / "checkpoint" / "model.safetensors").read_bytes()).hexdigest()
    content = {"width": WIDTH, "height": HEIGHT, "fps": FPS, "weights": weights, "looks": [asdict(look) for look in looks]}
    path = NANO / "golden" / "looks" / "nano.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main()
