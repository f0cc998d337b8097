"""Trains nano from nothing on rendered worlds, on one GPU.

First the tower and the resampler learn what each picture shows, from dense truth (where the shirts and the ball are, per patch; score, clock and
state per picture): without it a ball of five pixels is not found. Then the language model joins, with texts made afresh for each window.
"""

import argparse
import json
import math
import multiprocessing as mp
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import examples
import judge
import match
import negatives
import numpy as np
import torch
import torch.nn.functional as F
from net import Config, Nano, export
from torch import Tensor, nn

W, H = 448, 252  # of a picture as the engine hands it on
BYTES = W * H * 3 // 2
TEXTS = 3  # about each window
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
T0 = time.time()

# Truth per picture, read from the resampler's rows, and per text, read from the language model's last state before the answer. Heads go after training.
PICTURE_HEADS = {"state": 10, "camera": 6, "team": 3, "s0": 10, "s1": 10, "m10": 10, "m1": 10, "kit0": 7, "kit1": 7, "dim": 2, "tint": 4, "zone": 4, "attempt": 6}
TEXT_HEADS = {"state": 10, "team": 3, "kit": 8, "s0": 10, "s1": 10, "lead": 3, "m10": 10, "m1": 10, "light": 5, "attempt": 6, "turned": 2, "zone": 4}
PLACES = ("ball x", "ball y", "pitch x", "pitch y", "flow")
SHIRTS = 8  # the teams' colours, and the keepers'


def log(*a: object) -> None:
    """Prints with the seconds since the start."""
    print(f"[{time.time() - T0:6.1f}]", *a, flush=True)


def picture_truth(f: match.Fact) -> tuple[list[int], list[float]]:
    """Classes of PICTURE_HEADS and values of PLACES; -1 and -9 where there is none."""
    played = f.live and f.team is not None and f.state in ("play", "free", "goal_kick", "save") or f.state == "replay" and f.team is not None
    flight = 0 if not f.attempt or not f.live else 1 if f.attempt[4] < 0 else 2 + match.OUTCOMES.index(f.attempt[2]) if f.attempt[4] < 2.6 else 0
    minute = f.clock // 60 % 100
    kits = [match.TEAMS.index(t) for t in f.teams]
    classes = [match.STATES.index(f.state), match.CAMERAS.index(f.camera), f.team + 1 if played and f.team is not None else 0 if f.state == "crowd" else -1,
               *f.score, minute // 10, minute % 10, *kits, int(f.light < 0.9), f.tint, match.ZONES.index(f.zone) if played else -1, flight]  # fmt: skip
    seen = f.ball is not None and not f.covered and 0 < f.ball[0] < 1 and 0 < f.ball[1] < 1
    places = [*(f.ball if seen and f.ball else (-9, -9)), *((f.pitch[0] / 105, f.pitch[1] / 68) if played else (-9, -9)), f.flow if f.state == "play" else -9]
    return classes, places


def text_truth(win: list[match.Fact]) -> list[int]:
    """Classes of TEXT_HEADS."""
    now, first = win[-1], win[0]
    c = dict(zip(PICTURE_HEADS, picture_truth(now)[0], strict=True))
    light = match.lighting(win)
    a, b = now.score
    turned = -1 if first.team is None or now.team is None or now.state != "play" else int(first.team != now.team)
    kit = -1 if c["team"] < 0 else 7 if c["team"] == 0 else match.TEAMS.index(now.teams[c["team"] - 1])
    values = c | {"kit": kit, "lead": 0 if a == b else 1 if a > b else 2, "turned": turned,
                  "light": ["dim", "bright", "tint", "white"].index(light.kind) + 1 if light else 0}  # fmt: skip
    return [values[k] for k in TEXT_HEADS]


def work(seed: int, films: list[examples.Film], loaded: Any, out: Any, prompts: examples.Prompts, pictures: int) -> None:
    """Makes batches for ever: windows of one size, TEXTS texts about each."""
    rng = random.Random(seed)
    long = len(films[0].facts)
    while True:
        n = rng.choices([4, 2, 1, 8], [76, 8, 10, 6])[0]
        texts = TEXTS if n > 2 else 1
        frames = np.full((pictures // n, n), -1, np.int64)
        rows: list[tuple[list[int], list[int], list[int]]] = []
        for b in range(len(frames)):
            strange, dark = rng.random() < 0.09, rng.random() < 0.12
            step = rng.choices([1, 2, 3, 5], [62, 18, 6, 14])[0]
            lo = step * (n - 1)
            film = rng.randrange(max(1, loaded.value))
            i = films[film].pick(rng, lo)
            if strange:
                frames[b] = -2 if dark else -1
            else:
                frames[b] = [film * long + i - step * (n - 1 - j) for j in range(n)]
            for _ in range(texts):
                t = examples.stranger(rng, dark) if strange else examples.make(rng, films[film], i, n, step)
                truth = [-1] * len(TEXT_HEADS) if strange else text_truth(films[film].window(i, n, step))
                rows.append((prompts.ids(t, n, rng.random() < 0.5), [*prompts.cached(t.answer), prompts.end], truth))
        longest = max(len(p) + len(a) for p, a, _ in rows) - 1
        length = (longest + 31) // 32 * 32
        ids, labels = np.full((len(rows), length), prompts.pad, np.int16), np.full((len(rows), length), -1, np.int16)
        ends, truths = np.zeros(len(rows), np.int64), np.zeros((len(rows), len(TEXT_HEADS)), np.int8)
        for r, (p, a, truth) in enumerate(rows):
            ids[r, : len(p) + len(a) - 1] = (p + a)[:-1]
            labels[r, len(p) - 1 : len(p) + len(a) - 1] = a
            ends[r], truths[r] = len(p) - 1, truth
        out.put((n, texts, frames, ids, labels, ends, truths))


def to_rgb(yuv: Tensor) -> Tensor:
    """[N, BYTES] uint8 of I420, BT.601 limited range, to [N, 3, H, W] in 0..255."""
    y = yuv[:, : W * H].view(-1, 1, H, W).float()
    u, v = (yuv[:, a : a + W * H // 4].view(-1, 1, H // 2, W // 2).float() for a in (W * H, W * H * 5 // 4))
    u, v = (F.interpolate(t, scale_factor=2, mode="bilinear") - 128 for t in (u, v))
    y = (y - 16) * 1.164
    return torch.cat([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], 1).clamp_(0, 255)


def warps(first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zoom and shift of each picture, the same for a window: a third a little, one in eight as a letterbox or a crop would."""
    r = torch.rand(len(first), 5, device=first.device)[first]
    little, much = (r[:, 0] < 0.35).float(), (r[:, 4] < 0.12).float()
    zoom = 1 + little * (r[:, 1] - 0.5) * 0.06 + much * (r[:, 1] - 0.35) * 0.3
    return zoom, (little + much) * (r[:, 2] - 0.5) * 0.05, (little + much) * (r[:, 3] - 0.5) * 0.05


def augment(x: Tensor, first: Tensor, zoom: Tensor, tx: Tensor, ty: Tensor) -> Tensor:
    """What cameras, encoders and scalers do to pictures; the same for a window. x is [N, 3, H, W] in 0..255."""
    n, zero = len(x), torch.zeros_like(zoom)
    theta = torch.stack([torch.stack([zoom, zero, tx], 1), torch.stack([zero, zoom, ty], 1)], 1)
    x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), mode="bilinear", padding_mode="zeros", align_corners=False)
    r = torch.rand(n, 8, device=x.device)[first].view(n, 8, 1, 1, 1)
    side = torch.tensor([1.0, 2, 1], device=x.device)
    kernel = (side[:, None] * side / 16).expand(3, 1, 3, 3)
    blur = r[:, 0] * (r[:, 1] < 0.6)
    x = x + blur * 0.8 * (F.conv2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), kernel, groups=3) - x)
    gain = 1 + (torch.cat([r[:, 2], r[:, 3], r[:, 4]], 1) - 0.5) * 0.12 + (r[:, 5] - 0.5) * 0.3
    x = x * gain + (r[:, 6] - 0.5) * 16
    noise = r[:, 7] * 5
    block = F.interpolate(torch.randn(n, 3, (H + 7) // 8, (W + 7) // 8, device=x.device), scale_factor=8, mode="nearest")[:, :, :H, :W]
    return (x + noise * torch.randn_like(x[:, :1]) * 0.8 + noise * 0.6 * block).clamp(0, 255).round()


def prepare(x: Tensor, c: Config) -> Tensor:
    """As the engine: resized to the tower's size, to -1..1."""
    width, height = c.size(W, H)
    if (width, height) != (W, H):
        x = F.interpolate(x, size=(height, width), mode="bicubic", antialias=True).clamp(0, 255).round()
    return x / 127.5 - 1


class Heads(nn.Module):
    """What is read from the model while it trains."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c.hidden)
        self.picture = nn.Linear(c.queries * c.hidden, sum(PICTURE_HEADS.values()) + len(PLACES) + 2)
        self.text = nn.Linear(c.hidden, sum(TEXT_HEADS.values()))
        self.patch = nn.Linear(c.vision, 2 * SHIRTS + 3)  # shirts in the patch; the shirt on the ball there; ball: here, and where in the patch


def classes_loss(out: Tensor, truth: Tensor, heads: dict[str, int], right: dict[str, float] | None = None) -> Tensor:
    """Sum of the heads' cross entropies; fills right with their accuracies."""
    loss, at = out.new_zeros(()), 0
    for j, (name, n) in enumerate(heads.items()):
        logits, want = out[:, at : at + n], truth[:, j]
        at += n
        known = (want >= 0).sum()
        loss = loss + F.cross_entropy(logits, want, ignore_index=-1, reduction="sum") / known.clamp(min=1)
        if right is not None:
            right[name] = float(((logits.argmax(-1) == want) & (want >= 0)).sum() / known.clamp(min=1))
    return loss


class Truth:
    """Rendered pictures on the GPU, with what they show."""

    def __init__(self, folder: Path, pixels: Path | None = None) -> None:
        paths = sorted(folder.glob("*.jsonl"), key=lambda p: int(p.stem))
        self.seeds, self.films, torsos, classes, places, kits = [], [], [], [], [], []
        for p in paths:
            lines = [match.fact(line) for line in p.read_text().splitlines()]
            self.seeds.append(p.stem)
            self.films.append(examples.Film([f for f, _ in lines]))
            torsos.append(np.array([t if t else [[-9, -9]] * 22 for _, t in lines], np.float16))
            truth = [picture_truth(f) for f, _ in lines]
            classes.append(np.array([c for c, _ in truth], np.int8))
            places.append(np.array([v for _, v in truth], np.float32))
            a, b = (match.TEAMS.index(t) for t in lines[0][0].teams)
            kits.append([7] + [a] * 10 + [7] + [b] * 10)
        self.folder, self.long = pixels or folder, len(self.films[0].facts)
        self.torsos, self.kits = torch.from_numpy(np.concatenate(torsos)).to(DEVICE), torch.tensor(kits, device=DEVICE)
        self.classes, self.places = torch.from_numpy(np.concatenate(classes)).to(DEVICE), torch.from_numpy(np.concatenate(places)).to(DEVICE)
        self.covered = torch.tensor([f.covered for film in self.films for f in film.facts], device=DEVICE)
        self.pixels = torch.empty(len(self.covered), BYTES, dtype=torch.uint8, device=DEVICE)

    def load(self, loaded: Any = None) -> None:
        """Reads the pictures as they are rendered."""
        for k, seed in enumerate(self.seeds):
            path = self.folder / f"{seed}.i420"
            while not (path.exists() and path.stat().st_size == self.long * BYTES):
                time.sleep(0.05)
            self.pixels[k * self.long : (k + 1) * self.long] = torch.from_numpy(np.fromfile(path, np.uint8).reshape(self.long, BYTES)).to(DEVICE)
            if loaded is not None:
                loaded.value = k + 1
        log(len(self.seeds), "films on the GPU")


def patch_loss(out: Tensor, t: Truth, frames: Tensor, warp: tuple[Tensor, Tensor, Tensor], c: Config, right: dict[str, float] | None) -> tuple[Tensor, Tensor]:
    """Losses of what each patch shows, and the ball's and the pitch's place after the warp. out is [N, patches, 2 * SHIRTS + 3]."""
    (gw, gh), n = (s // c.patch for s in c.size(W, H)), len(frames)
    zoom, tx, ty = warp
    at = frames.clamp(min=0)

    def move(p: Tensor, z: Tensor, shift: Tensor) -> Tensor:
        return ((2 * p - 1 - shift) / z + 1) / 2

    torsos = t.torsos[at].float()
    x, y = move(torsos[..., 0], zoom[:, None], tx[:, None]), move(torsos[..., 1], zoom[:, None], ty[:, None])
    inside = (x > 0) & (x < 1) & (y > 0) & (y < 1)
    cell = torch.where(inside, (y * gh).long().clamp(0, gh - 1) * gw + (x * gw).long().clamp(0, gw - 1), gh * gw)
    shirts = torch.zeros(n, (gh * gw + 1) * SHIRTS, device=DEVICE)
    shirts.scatter_(1, cell * SHIRTS + t.kits[at // t.long], 1.0)
    shirts = shirts.view(n, -1, SHIRTS)[:, :-1]
    shown = (frames >= 0) & ~t.covered[at]
    weight = 1 + 11 * shirts
    loss = 0.3 * F.binary_cross_entropy_with_logits(out[shown][..., :SHIRTS], shirts[shown], weight=weight[shown])
    places = t.places[at].clone()
    ball = places[:, 0] > -5
    places[:, 0] = torch.where(ball, move(places[:, 0], zoom, tx), places[:, 0])
    places[:, 1] = torch.where(ball, move(places[:, 1], zoom, ty), places[:, 1])
    ball &= shown & (places[:, :2] > 0).all(1) & (places[:, :2] < 1).all(1)
    px, py = places[:, 0] * gw, places[:, 1] * gh
    where = py.long().clamp(0, gh - 1) * gw + px.long().clamp(0, gw - 1)
    loss = loss + 0.2 * F.cross_entropy(out[ball][..., 2 * SHIRTS], where[ball])
    there = out[ball, where[ball]]
    loss = loss + F.mse_loss(there[:, 2 * SHIRTS + 1 :], torch.stack([px % 1, py % 1], 1)[ball])
    team = t.classes[at][:, 2].long()
    kit = torch.where(team > 0, t.kits[at // t.long][torch.arange(n, device=DEVICE), torch.where(team == 2, 12, 1)], -1)
    loss = loss + 0.1 * F.cross_entropy(there[:, SHIRTS : 2 * SHIRTS], kit[ball], ignore_index=-1)
    if right is not None:
        right["ball patch"] = float((out[ball][..., 2 * SHIRTS].argmax(-1) == where[ball]).float().mean())
        right["shirt on the ball"] = float((there[:, SHIRTS : 2 * SHIRTS].argmax(-1) == kit[ball])[kit[ball] >= 0].float().mean())
    return loss, places


def main() -> None:
    """Trains and exports."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--pixels", type=Path, help="where the pictures appear while they are rendered, if not beside the truth")
    ap.add_argument("--held-out", type=Path)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--tokenizer", type=Path, required=True)
    ap.add_argument("--seconds", type=float, default=600)
    ap.add_argument("--first-stage", type=float, default=0.25, help="share of the time for pictures alone")
    ap.add_argument("--config", type=json.loads, default={})
    ap.add_argument("--pictures", type=int, default=512, help="a step")
    ap.add_argument("--rate", type=float, default=1.5e-3)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--no-compile", action="store_true")
    ap.add_argument("--init", type=Path, help="weights to go on from")
    a = ap.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    c = Config(**a.config)
    prompts = examples.Prompts(str(a.tokenizer), c.queries)
    c.vocab = prompts.tok.get_vocab_size()
    t = Truth(a.data, a.pixels)
    loaded, batches = mp.Value("i", 0), mp.Queue(maxsize=48)
    for i in range(a.workers):
        mp.Process(target=work, args=(i, t.films, loaded, batches, prompts, a.pictures), daemon=True).start()
    threading.Thread(target=t.load, args=(loaded,), daemon=True).start()
    bank = negatives.bank(1500 if DEVICE == "cuda" else 30, 1, DEVICE)
    model, heads = Nano(c).to(DEVICE), Heads(c).to(DEVICE)
    if a.init:
        saved = torch.load(a.init, map_location=DEVICE)
        model.load_state_dict({k: v.float() for k, v in saved["model"].items()})
        heads.load_state_dict({k: v.float() for k, v in saved["heads"].items()})
    log(c, "tower", c.size(W, H), {n: sum(p.numel() for p in m.parameters()) for n, m in {"all": model, **dict(model.named_children())}.items()})
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, p in [*model.named_parameters(), *heads.named_parameters()]:
        decay = 0.05 if p.dim() >= 2 and "embed_tokens" not in name and "position" not in name else 0.0
        groups.setdefault((name.startswith("llm"), decay), []).append(p)
    params = [p for ps in groups.values() for p in ps]
    opt = torch.optim.AdamW(
        [{"params": ps, "weight_decay": wd, "late": late} for (late, wd), ps in groups.items()], lr=a.rate, betas=(0.9, 0.97), fused=DEVICE == "cuda"
    )
    look, pixels, decode = model.look, lambda *args: prepare(augment(*args), c), model.llm.forward
    if not a.no_compile:
        torch._dynamo.config.cache_size_limit = 32
        look, pixels, decode = torch.compile(look, dynamic=False), torch.compile(pixels, dynamic=False), torch.compile(decode, dynamic=True)
    while loaded.value < min(8, len(t.films)):
        time.sleep(0.1)
    began, step, texts_from, waited = time.time(), 0, 0, 0.0
    log("training")
    while (done := (time.time() - began) / a.seconds) < 1:
        w0 = time.time()
        n, texts, *arrays = batches.get()
        waited += time.time() - w0
        frames, ids, labels, ends, truths = (torch.from_numpy(x).to(DEVICE).long() for x in arrays)
        reading = done >= a.first_stage
        texts_from = texts_from or (step if reading else 0)
        rate = a.rate * min(1, (step + 1) / 150) * (0.5 * (1 + math.cos(math.pi * done)) * 0.98 + 0.02)
        for g in opt.param_groups:
            g["lr"] = rate * min(1, (step - texts_from + 1) / 150) if g["late"] and reading else rate
        right: dict[str, float] | None = {} if step % 200 == 50 else None
        flat = frames.view(-1)
        with torch.no_grad():
            x = to_rgb(t.pixels[flat.clamp(min=0)])
            negatives.insert(x.view(len(frames), n, 3, H, W), frames[:, 0], bank)
            first = torch.arange(len(flat), device=DEVICE) // n * n
            warp = warps(first)
            x = pixels(x, first, *warp)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda"):
            patches, seen = look(x)
            rows = heads.picture(heads.norm(seen).flatten(1)).float()
            dense = heads.patch(patches).float()
            if reading:
                e = seen.view(len(frames), n, *seen.shape[1:]).repeat_interleave(texts, 0).reshape(-1, seen.shape[-1])
                h = decode(model.embed(ids, e, prompts.unk))
                asked = labels >= 0
                logits = model.llm.lm_head(h[asked]).float()
                said = heads.text(h[torch.arange(len(h), device=DEVICE), ends]).float()
        loss, places = patch_loss(dense, t, flat, warp, c, right)
        known = torch.where((flat >= 0)[:, None], t.classes[flat.clamp(min=0)].long(), -1)
        split = sum(PICTURE_HEADS.values())
        loss = loss + 0.1 * classes_loss(rows[:, :split], known, PICTURE_HEADS, right)
        loss = loss + 0.1 * F.cross_entropy(rows[:, -2:], (flat >= 0).long())
        there = (places > -5) & (flat >= 0)[:, None]
        off = torch.where(there, rows[:, split : split + len(PLACES)] - places, 0.0)
        loss = loss + 0.8 * F.smooth_l1_loss(off, torch.zeros_like(off), reduction="sum", beta=0.1) / there.sum().clamp(min=1)
        if reading:
            text = F.cross_entropy(logits, labels[asked])
            after: dict[str, float] | None = {} if right is not None else None
            loss = loss + text + 0.05 * classes_loss(said, truths, TEXT_HEADS, after)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        if right is not None:
            log(f"step {step} loss {loss.item():.3f} text {text.item() if reading else 0:.3f} waited {waited:.1f} s films {loaded.value}",
                " ".join(f"{k}={v:.2f}" for k, v in right.items()), "|", " ".join(f"{k}={v:.2f}" for k, v in (after or {}).items()) if reading else "")  # fmt: skip
            if done > 0.2 and right["ball patch"] < 0.3 and "cuda" in DEVICE:
                raise SystemExit(f"the ball is not found: {right['ball patch']:.2f} of the patches are right")
        step += 1
    log("trained", step, "steps; waited for data", round(waited, 1), "s")
    export(model, a.out, a.tokenizer)
    torch.save({n: {k: v.half() for k, v in m.state_dict().items()} for n, m in (("model", model), ("heads", heads))}, a.out / "init.pt")
    if a.held_out:
        judge.run(model, c, prompts, Truth(a.held_out), log)


if __name__ == "__main__":
    main()
    os._exit(0)  # the workers never end
