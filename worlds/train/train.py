"""Trains nano from nothing on rendered worlds, on one GPU.

First the tower and the resampler learn what each picture shows, from dense truth (where the shirts and the ball are, per patch; score, clock and
state per picture): without it a ball of five pixels is not found. Then the language model joins, with texts made afresh for each window.
"""

import argparse
import gc
import json
import math
import os
import random
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

import feed
import negatives
from net import Config, Nano, export, shared

W, H = 448, 252  # of a picture as the engine hands it on
BYTES = W * H * 3 // 2
RATE = 1.5e-3  # of learning, at its highest
HARD = {"match m10": 6.0, "match m1": 6.0, "match number": 3.0, "match signal": 3.0, "match team": 3.0}  # digits, the referee's arm, who has the ball
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
T0 = time.time()


def log(*a: object) -> None:
    """Prints with the seconds since the start."""
    print(f"[{time.time() - T0:6.1f}]", *a, flush=True)


def to_rgb(yuv: Tensor) -> Tensor:
    """[N, BYTES] uint8 of I420, BT.601 limited range, to [N, 3, H, W] in 0..255."""
    y = yuv[:, : W * H].view(-1, 1, H, W).float()
    u, v = (yuv[:, a : a + W * H // 4].view(-1, 1, H // 2, W // 2).float() for a in (W * H, W * H * 5 // 4))
    u, v = (F.interpolate(t, scale_factor=2, mode="bilinear") - 128 for t in (u, v))
    y = (y - 16) * 1.164
    return torch.cat([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], 1).clamp_(0, 255)


def warps(first: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zoom and shift of each picture, the same for a window: a third a little, a third as black bars or a crop would."""
    r = torch.rand(len(first), 5, device=first.device)[first]
    little, much = (r[:, 0] < 0.35).float(), (r[:, 4] < 0.33).float()
    zoom = 1 + little * (r[:, 1] - 0.5) * 0.06 + much * (r[:, 1] - 0.2) * 0.36
    return zoom, (little + much) * (r[:, 2] - 0.5) * 0.05, (little + much) * (r[:, 3] - 0.5) * 0.05


def augment(x: Tensor, first: Tensor, zoom: Tensor, tx: Tensor, ty: Tensor) -> Tensor:
    """What cameras, encoders and scalers do to pictures; the same for a window. x is [N, 3, H, W] in 0..255."""
    x, n, zero = x.float(), len(x), torch.zeros_like(zoom)
    theta = torch.stack([torch.stack([zoom, zero, tx], 1), torch.stack([zero, zoom, ty], 1)], 1)
    x = F.grid_sample(x, F.affine_grid(theta, x.shape, align_corners=False), mode="bilinear", padding_mode="zeros", align_corners=False)
    r = torch.rand(n, 8, device=x.device)[first].view(n, 8, 1, 1, 1)
    blur, wide = r[:, 0] * (r[:, 1] < 0.6), F.pad(x, (1, 1, 1, 1), mode="replicate")
    rows = wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]
    x = x + blur * 0.8 * ((rows[..., :-2] + 2 * rows[..., 1:-1] + rows[..., 2:]) / 16 - x)
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


class Muon(torch.optim.Optimizer):
    """Muon for the hidden layers' matrices (Jordan et al. 2024; as large as AdamW's steps by Liu et al. 2025, section 2.2), AdamW for the rest.
    Matrices of one shape turn together, which torch.optim.Muon does one after another; and what changes from step to step is on the device, so that a step
    can be recorded. Of a group all parameters have gradients, or none."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})
        for g in self.param_groups:
            g["lr"], g["steps"] = (torch.zeros((), device=DEVICE) for _ in range(2))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step."""
        for g in self.param_groups:
            params: list[nn.Parameter] = g["params"]
            if params[0].grad is None:
                continue
            for p in params:
                if not (s := self.state[p]):
                    s |= {"mean": torch.zeros_like(p)} | ({} if g["turned"] else {"square": torch.zeros_like(p)})
            g["steps"] += 1
            grads, means = [p.grad for p in params], [self.state[p]["mean"] for p in params]
            torch._foreach_mul_(params, 1 - g["lr"] * g["decay"])
            if g["turned"]:
                torch._foreach_lerp_(means, grads, 0.05)
                torch._foreach_lerp_(grads, means, 0.95)  # Nesterov's momentum
                for shape in sorted({tuple(sorted(p.shape)) for p in params}):
                    some = [(p, d if d.shape == shape else d.T) for p, d in zip(params, grads, strict=True) if tuple(sorted(p.shape)) == shape]
                    turned = orthogonal(torch.stack([d for _, d in some])) * (0.2 * max(shape) ** 0.5) * g["lr"]
                    torch._foreach_sub_([p for p, _ in some], [t if t.shape == p.shape else t.T for (p, _), t in zip(some, turned, strict=True)])
                continue
            squares = [self.state[p]["square"] for p in params]
            torch._foreach_lerp_(means, grads, 0.1)
            torch._foreach_mul_(squares, 0.97)
            torch._foreach_addcmul_(squares, grads, grads, 0.03)
            roots = torch._foreach_sqrt(torch._foreach_div(squares, 1 - 0.97 ** g["steps"]))
            torch._foreach_add_(roots, 1e-8)
            torch._foreach_addcdiv_(params, torch._foreach_mul(means, -g["lr"] / (1 - 0.9 ** g["steps"])), roots)


def orthogonal(x: Tensor) -> Tensor:
    """The matrices [N, a, b], a <= b, with singular values near 1: five steps of Newton and Schulz, with Jordan's coefficients."""
    x = x.bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
    return x.float()


class Heads(nn.Module):
    """What is read from the model while it trains."""

    def __init__(self, c: Config, t: "Truth") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(c.hidden)
        self.picture = nn.Linear(c.queries * c.hidden, sum(t.picture_heads.values()) + t.places.shape[1] + 2)
        self.text = nn.Linear(c.hidden, sum(t.text_heads.values()))
        self.along = nn.Sequential(nn.LayerNorm(c.hidden), nn.Linear(c.hidden, sum(t.text_heads.values())))  # where a picture ends in the language model
        self.asked = nn.Sequential(nn.LayerNorm(c.hidden), nn.Linear(c.hidden, sum(t.asked_heads.values())))
        self.patch = nn.Linear(c.vision, t.things + t.shirts + 3)  # points in the patch; the shirt on the ball there; ball: here, and where in the patch


@cache
def columns(sizes: tuple[int, ...]) -> Tensor:
    """Where the logits of heads of different sizes stand, when each has as many places as the largest."""
    return torch.tensor([j * max(sizes) + k for j, n in enumerate(sizes) for k in range(n)], device=DEVICE)


@cache
def weights(heads: tuple[str, ...]) -> Tensor:
    """Of the heads' losses: what is hard to see counts more."""
    return torch.tensor([HARD.get(h, 1.0) for h in heads], device=DEVICE)


def classes_loss(out: Tensor, truth: Tensor, heads: dict[str, int], right: dict[str, float] | None = None) -> Tensor:
    """Weighted sum of the heads' cross entropies; fills right with their accuracies. A truth of -1 is not known."""
    most, sizes = max(heads.values()), list(heads.values())
    logits = out.new_full((len(out), len(sizes) * most), -1e4).index_copy(1, columns(tuple(sizes)), out).view(len(out), len(sizes), most)
    known = (truth >= 0).sum(0).clamp(min=1)
    losses = F.cross_entropy(logits.flatten(0, 1), truth.flatten(), ignore_index=-1, reduction="none").view_as(truth)
    if right is not None:
        right |= dict(zip(heads, (((logits.argmax(-1) == truth) & (truth >= 0)).sum(0) / known).tolist(), strict=True))
    return (losses.sum(0) / known * weights(tuple(heads))).sum()


class Truth:
    """Rendered pictures of all worlds on the GPU, in turn, with what they show."""

    def __init__(self, folder: Path, pixels: Path | None = None) -> None:
        tables, arrays = feed.tables(folder)
        self.picture_heads, self.text_heads = ({h["name"]: h["size"] for h in tables[k]} for k in ("picture_heads", "text_heads"))
        self.asked_heads = {"asked": len(tables["kinds"]), "holds": 2}  # where the line of an order or a rule ends: what it is about, whether it holds
        self.things, self.shirts = len(tables["points"]), sum(p.startswith("match ") for p in tables["points"])  # somewhere in the picture
        self.worth = torch.tensor([44.0 if p == "match signal" else 11.0 for p in tables["points"]], device=DEVICE)  # of a point that is there
        self.films, self.folder = tables["films"], pixels or folder
        self.points, self.classes, self.places, self.covered = (torch.from_numpy(x).to(DEVICE) for x in arrays)
        self.pixels = torch.empty(len(self.covered), BYTES, dtype=torch.uint8, device=DEVICE)

    def load(self, batches: feed.Feed) -> None:
        """Reads the pictures as they are rendered."""
        start = 0
        for film in self.films:
            path, long = self.folder / f"{film['name']}.i420", film["pictures"]
            while not (path.exists() and path.stat().st_size == long * BYTES):
                time.sleep(0.05)
            self.pixels[start : start + long] = torch.from_numpy(np.fromfile(path, np.uint8).reshape(long, BYTES)).to(DEVICE)
            start += long
            batches.loaded += 1
        log(len(self.films), "films on the GPU")


def patch_loss(out: Tensor, t: Truth, frames: Tensor, warp: tuple[Tensor, Tensor, Tensor], c: Config, right: dict[str, float] | None) -> tuple[Tensor, Tensor]:
    """Losses of what each patch shows, and the ball's and the pitch's place after the warp. out is the head's [N, patches, ...]."""
    (gw, gh), n = (s // c.patch for s in c.size(W, H)), len(frames)
    zoom, tx, ty = warp
    at = frames.clamp(min=0)

    def move(p: Tensor, z: Tensor, shift: Tensor) -> Tensor:
        return ((2 * p - 1 - shift) / z + 1) / 2

    x, y = move(t.points[at][..., 0], zoom[:, None], tx[:, None]), move(t.points[at][..., 1], zoom[:, None], ty[:, None])
    inside = (x > 0) & (x < 1) & (y > 0) & (y < 1)
    cell = torch.where(inside, (y * gh).long().clamp(0, gh - 1) * gw + (x * gw).long().clamp(0, gw - 1), gh * gw)
    points = torch.zeros(n, (gh * gw + 1) * t.things, device=DEVICE)
    points.scatter_(1, cell * t.things + t.points[at][..., 2].long(), 1.0)
    points = points.view(n, -1, t.things)[:, :-1]
    shown = (frames >= 0) & ~t.covered[at]
    split = t.things
    dots = F.binary_cross_entropy_with_logits(out[..., :split], points, weight=1 + t.worth * points, reduction="none").mean((1, 2))
    loss = mean_of(dots, shown)
    places = t.places[at].clone()
    ball = places[:, 0] > -5
    places[:, 0] = torch.where(ball, move(places[:, 0], zoom, tx), places[:, 0])
    places[:, 1] = torch.where(ball, move(places[:, 1], zoom, ty), places[:, 1])
    ball &= shown & (places[:, :2] > 0).all(1) & (places[:, :2] < 1).all(1)
    px, py = places[:, 0] * gw, places[:, 1] * gh
    where = torch.where(ball, py.long().clamp(0, gh - 1) * gw + px.long().clamp(0, gw - 1), 0)
    loss = loss + 0.2 * mean_of(F.cross_entropy(out[..., -3], where, reduction="none"), ball)
    there = out[torch.arange(n, device=DEVICE), where]
    loss = loss + mean_of(((there[:, -2:] - torch.stack([px % 1, py % 1], 1)) ** 2).mean(1), ball)
    team, kit0, kit1 = (t.classes[at][:, list(t.picture_heads).index(k)].long() for k in ("match team", "match kit0", "match kit1"))
    kit = torch.where(team > 0, torch.where(team == 2, kit1, kit0), -1)
    loss = loss + 0.1 * mean_of(F.cross_entropy(there[:, split:-3], kit.clamp(min=0), reduction="none"), ball & (kit >= 0))
    if right is not None:
        seen = (out[..., :split].sigmoid() > 0.5) & shown[:, None, None]
        true = (points > 0) & shown[:, None, None]
        right["points"] = float((seen & true).sum() / (seen | true).sum().clamp(min=1))
        right["ball patch"] = float(mean_of((out[..., -3].argmax(-1) == where).float(), ball))
        right["shirt on the ball"] = float(mean_of((there[:, split:-3].argmax(-1) == kit).float(), ball & (kit >= 0)))
    return loss, places


def mean_of(values: Tensor, some: Tensor) -> Tensor:
    """Mean of some of the values, 0 of none; without waiting for the GPU, as an index of unknown size would."""
    return torch.where(some, values, 0.0).sum() / some.sum().clamp(min=1)


class Trainer:
    """Steps of training."""

    def __init__(self, c: Config, model: Nano, t: Truth, compiled: bool) -> None:
        self.c, self.model, self.t, self.heads = c, model, t, Heads(c, t).to(DEVICE)
        named = dict([*model.named_parameters(), *self.heads.named_parameters()])
        hidden = {n for n, p in named.items() if p.dim() == 2 and n.startswith(("vpm.encoder", "resampler", "llm.model.layers")) and n != "resampler.query"}
        plain = {n for n, p in named.items() if p.dim() < 2 or "embed_tokens" in n or "position" in n or n in ("resampler.query", "vpm.embeddings.patch_embedding.weight")}
        groups: dict[tuple[bool, bool, bool], list[nn.Parameter]] = {}
        for n, p in named.items():
            groups.setdefault((n.startswith(("llm", "text", "along", "asked")), n not in plain, n in hidden), []).append(p)
        self.params = list(named.values())
        self.opt = Muon([{"params": ps, "late": late, "decay": 0.1 * decay, "turned": turned} for (late, decay, turned), ps in groups.items()])
        self.look, self.pixels, self.decode, self.rgb = model.look, lambda *args: prepare(augment(*args), c), model.llm.forward, to_rgb
        if compiled:
            torch._dynamo.config.cache_size_limit = 32
            self.look, self.pixels, self.decode, self.rgb = (torch.compile(f, dynamic=False) for f in (self.look, self.pixels, self.decode, self.rgb))
        self.graphs: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        self.pool, self.tries = torch.cuda.graph_pool_handle() if compiled and DEVICE == "cuda" else None, dict[tuple[int, bool], int]()

    def step(self, n: int, arrays: list[np.ndarray], bank: Tensor, reading: bool, right: dict[str, float] | None) -> tuple[float, float]:
        """One step on a batch; with right, fills it and returns the losses of all and of the texts. A kind of step is recorded as a CUDA graph when it has run
        three times: Python takes twice as long to start the kernels as they run."""
        inputs = [negatives.to_gpu(x, DEVICE) for x in arrays]
        with torch.no_grad():
            x = self.rgb(self.t.pixels[inputs[0].view(-1).clamp(min=0)])
            negatives.insert(x.view(*inputs[0].shape, 3, H, W), arrays[0][:, 0], bank)
        inputs = [x.round().to(torch.uint8), *(i.long() for i in inputs)]
        key = (n, reading)
        if right is not None or self.pool is None or self.tries.setdefault(key, 0) < 3:
            self.tries[key] = self.tries.get(key, 0) + 1
            loss, text = self.learn(inputs, reading, right)
            return (loss.item(), text.item()) if right is not None else (0.0, 0.0)
        if key not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            self.opt.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph, self.pool, torch.cuda.current_stream(), capture_error_mode="thread_local"):
                self.learn(inputs, reading, None)
            self.graphs[key] = graph, inputs
        graph, places = self.graphs[key]
        if places is not inputs:
            torch._foreach_copy_(places, inputs)
        graph.replay()
        return 0.0, 0.0

    def learn(self, inputs: list[Tensor], reading: bool, right: dict[str, float] | None) -> tuple[Tensor, Tensor]:
        """Forward, backward and the optimizer's step."""
        x, frames = inputs[:2]
        n, flat, model, heads = frames.shape[1], frames.view(-1), self.model, self.heads
        with torch.no_grad():
            first = torch.arange(len(flat), device=DEVICE) // n * n
            warp = warps(first)
            x = self.pixels(x, first, *warp)
        with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda"):
            patches, seen = self.look(x)
            rows = heads.picture(heads.norm(seen).flatten(1)).float()
            dense = heads.patch(patches).float()
            if reading:
                ids, answers, ends, images, truths, asked = inputs[2:]
                h, before, middle = self.decode(model.embed(ids[0], seen, images), ids[2], shared(ids[1]))
                h, before, middle = h.flatten(0, 1), before.flatten(0, 1), middle.flatten(0, 1)
                logits = model.llm.lm_head(h.index_select(0, answers[:, 0])).float()
                said = heads.text(h.index_select(0, ends[:, 0])).float()
                along = heads.along(middle.index_select(0, images)).float()
                understood = heads.asked(before.index_select(0, asked[:, 0])).float()
        loss, places = patch_loss(dense, self.t, flat, warp, self.c, right)
        known = torch.where((flat >= 0)[:, None], self.t.classes[flat.clamp(min=0)].long(), -1)
        split = sum(self.t.picture_heads.values())
        loss = loss + 0.1 * classes_loss(rows[:, :split], known, self.t.picture_heads, right)
        loss = loss + 0.1 * F.cross_entropy(rows[:, -2:], (flat >= 0).long())
        there = (places > -5) & (flat >= 0)[:, None]
        off = torch.where(there, rows[:, split : split + self.t.places.shape[1]] - places, 0.0)
        loss = loss + 0.8 * F.smooth_l1_loss(off, torch.zeros_like(off), reduction="sum", beta=0.1) / there.sum().clamp(min=1)
        text = torch.zeros((), device=DEVICE)
        if reading:
            weight = answers[:, 2].float()
            text = (F.cross_entropy(logits, answers[:, 1], reduction="none") * weight).sum() / weight.sum()
            last = torch.where((ends[:, 1] >= 0)[:, None], truths[ends[:, 1].clamp(min=0), -1], -1)
            after: dict[str, float] | None = {} if right is not None else None
            loss = loss + text + 0.05 * classes_loss(said, last, self.t.text_heads, after) + 0.15 * classes_loss(understood, asked[:, 1:], self.t.asked_heads, after)
            loss = loss + 0.05 * classes_loss(along, truths.flatten(0, 1), self.t.text_heads)
            if right is not None and after:
                right |= {f"text {k}": v for k, v in after.items()}
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in self.params if p.grad is not None], 1.0)
        self.opt.step()
        return loss.detach(), text.detach()


def main() -> None:
    """Trains and exports."""
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--pixels", type=Path, help="where the pictures appear while they are rendered, if not beside the truth")
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--tokenizer", type=Path, required=True)
    ap.add_argument("--seconds", type=float, default=600)
    ap.add_argument("--first-stage", type=float, default=0.25, help="share of the time for pictures alone")
    ap.add_argument("--config", type=json.loads, default={})
    ap.add_argument("--pictures", type=int, default=512, help="a step")
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--no-compile", action="store_true", help="start every kernel of a step from Python, which is slower")
    ap.add_argument("--state", type=Path, help="file to keep an unfinished training in, and to go on from")
    ap.add_argument("--stop", type=float, default=math.inf, help="seconds from the start after which to keep it there")
    a = ap.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    c = Config(**a.config)
    c.vocab = Tokenizer.from_file(str(a.tokenizer)).get_vocab_size()
    batches = feed.Feed(a.data, a.tokenizer, c.queries, a.pictures, a.workers)
    t = Truth(a.data, a.pixels)
    threading.Thread(target=t.load, args=(batches,), daemon=True).start()
    bank = negatives.bank(3000 if DEVICE == "cuda" else 30, 1, DEVICE)
    model = Nano(c).to(DEVICE)
    log(c, "tower", c.size(W, H), {n: sum(p.numel() for p in m.parameters()) for n, m in {"all": model, **dict(model.named_children())}.items()})
    trainer = Trainer(c, model, t, not a.no_compile)
    opt = trainer.opt
    while batches.loaded < min(8, len(t.films)):
        time.sleep(0.1)
    spent, step, texts_from, waited, last = 0.0, 0, 0, 0.0, time.time()
    if a.state and a.state.exists():
        saved = torch.load(a.state, map_location=DEVICE)
        spent, step, texts_from = saved["at"]
        for part, name in ((model, "model"), (trainer.heads, "heads"), (opt, "opt")):
            part.load_state_dict(saved[name])
    gc.disable()  # no pauses
    log("training from step", step)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        torch.cuda.set_stream(torch.cuda.Stream())  # steps are recorded, which the default stream does not allow
    events = [torch.cuda.Event() for _ in range(2)] if DEVICE == "cuda" else []
    while (done := spent / a.seconds) < 1:
        if time.time() - T0 > a.stop:
            torch.save({"at": (spent, step, texts_from), "model": model.state_dict(), "heads": trainer.heads.state_dict(), "opt": opt.state_dict()}, a.state)
            log("kept at step", step, "after", round(spent), "s")
            return
        w0 = time.time()
        batches.reading = done >= a.first_stage
        batch, arrays = batches.next()
        n, reads = batch["pictures"], batch["reading"]
        waited += time.time() - w0
        spent, last = spent + min(1, w0 - last), w0  # compiling is not training
        texts_from = texts_from or (step if reads else 0)
        rate = RATE * min(1, (step + 1) / 150) * (0.5 * (1 + math.cos(math.pi * done)) * 0.98 + 0.02)
        for g in opt.param_groups:
            g["lr"].fill_(rate * min(1, (step - texts_from + 1) / 150) if g["late"] and reads else rate)
        right: dict[str, float] | None = {} if step % 200 == 50 else None
        loss, text = trainer.step(n, arrays, bank, reads, right)
        if events:  # at most one step ahead of the GPU
            events[step % 2].record()
            events[(step + 1) % 2].synchronize()
        if right is not None:
            log(f"step {step} loss {loss:.3f} text {text:.3f} waited {waited:.1f} s films {batches.loaded}", " ".join(f"{k}={v:.2f}" for k, v in right.items()))
            if done > 0.2 and right["ball patch"] < 0.3 and "cuda" in DEVICE:
                raise SystemExit(f"the ball is not found: {right['ball patch']:.2f} of the patches are right")
        step += 1
    log("trained", step, "steps; waited for data", round(waited, 1), "s;", torch.cuda.max_memory_reserved() >> 30, "GiB")
    export(model, a.out, a.tokenizer)


if __name__ == "__main__":
    main()
    os._exit(0)  # the threads never end
