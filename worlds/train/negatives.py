"""Pictures of neither world: textures, shapes that hide each other, gradients, bars, mosaics, dots, stripes, drawings, screens of text, darkness."""

import random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

W, H = 448, 252
SKIN = [[232.0, 190, 160], [196.0, 146, 110], [120.0, 82, 60]]


def _texture(rng: random.Random, device: str) -> Tensor:
    """Noise of six octaves, in a colour; one in five is of streaks."""
    x, amplitude, streaks = torch.zeros(3, H, W, device=device), 1.0, rng.random() < 0.2
    for octave in range(6):
        columns = 4 if streaks else 3 + 2 ** (octave + 1)
        x += amplitude * F.interpolate(torch.rand(1, 3, 2 + 2**octave, columns, device=device) - 0.5, size=(H, W), mode="bilinear")[0]
        amplitude *= rng.uniform(0.4, 0.8)
    return (x - x.mean()) / (x.std() + 1e-5) * rng.uniform(20, 60) + 127 + (torch.rand(3, 1, 1, device=device) - 0.5) * 120


def _cells(colours: int, rows: int, columns: int, device: str) -> Tensor:
    """[3, rows, columns] of a few colours, in 0..255."""
    few = torch.rand(colours, 3, device=device) * 255
    return few[torch.randint(colours, (rows, columns), device=device)].permute(2, 0, 1)


def _leaves(rng: random.Random, texture: Tensor, device: str) -> Tensor:
    """Shaded shapes of all sizes that hide each other, the "dead leaves" whose statistics are those of photographs (Lee, Mumford and Huang 2001)."""
    n = rng.randrange(20, 140)
    at, turn, square = torch.rand(3, n, 1, 1, device=device), torch.rand(n, 1, 1, device=device) * 6.28, torch.rand(n, 1, 1, device=device) < 0.4
    size = (rng.uniform(4, 14) / (1 - torch.rand(2, n, 1, 1, device=device) * 0.995) ** 0.5).clamp(max=150)
    dy, dx = torch.arange(H, device=device).view(H, 1) - at[0] * H, torch.arange(W, device=device) - at[1] * W
    u, v = (dx * turn.cos() + dy * turn.sin()) / size[0], (dy * turn.cos() - dx * turn.sin()) / size[1]
    inside = torch.where(square, torch.maximum(u.abs(), v.abs()), u**2 + v**2) < 1
    top = (inside * torch.arange(1, n + 1, device=device).view(n, 1, 1)).amax(0).sub(1).clamp(min=0)
    colours = torch.rand(3, 1, device=device) * 160 + 40 + torch.randn(3, n, device=device) * rng.uniform(15, 60) + torch.randn(1, n, device=device) * 30
    shade = u.gather(0, top[None]).clamp(-2, 2) * (torch.randn(n, device=device) * rng.uniform(5, 35))[top]
    x = colours[:, top] + shade + (texture - 127) * rng.uniform(0.05, 0.4)
    blur = rng.choice([1, 1, 3, 3, 5, 9])
    return F.avg_pool2d(x, blur, 1, blur // 2, count_include_pad=False)


def _picture(rng: random.Random, kind: str, device: str) -> Tensor:
    """One picture [3, H, W] in 0..255."""
    yy, xx = torch.arange(H, device=device).view(1, H, 1), torch.arange(W, device=device).view(1, 1, W)
    colour = torch.rand(3, 1, 1, device=device) * 255
    if kind == "noise":
        return torch.rand(3 if rng.random() < 0.5 else 1, H, W, device=device).expand(3, H, W) * 255
    if kind == "flat":
        return colour.expand(3, H, W)
    if kind == "bars":
        return F.interpolate(torch.rand(1, 3, 1, rng.randrange(3, 12), device=device) * 255, size=(H, W), mode="nearest")[0]
    if kind == "gradient":
        t = (xx / W * rng.uniform(-1, 1) + yy / H * rng.uniform(-1, 1)).expand(1, H, W)
        t = (t - t.min()) / (t.max() - t.min() + 1e-5)
        return colour * (1 - t) + torch.rand(3, 1, 1, device=device) * 255 * t
    if kind == "mosaic":  # from a few large squares to the grain of a crowd
        rows = rng.choice([4, 8, 16, 32, 63])
        return F.interpolate(_cells(rng.randrange(2, 40), rows, rows * 2, device)[None], size=(H, W), mode="nearest")[0]
    if kind == "dots":
        size = rng.randrange(5, 40)
        rows, columns = H // size + 1, W // size + 1
        cells = _cells(rng.randrange(1, 9), rows, columns, device)
        inside = ((yy % size - size / 2) ** 2 + (xx % size - size / 2) ** 2) < (size * rng.uniform(0.2, 0.5)) ** 2
        some = torch.rand(1, rows, columns, device=device) < rng.uniform(0.5, 1.1)
        cells, some = (x.repeat_interleave(size, 1).repeat_interleave(size, 2)[:, :H, :W] for x in (cells, some))
        return torch.where(inside & some, cells, colour)
    if kind == "stripes":
        wave = torch.sin((xx * rng.uniform(-1, 1) + yy * rng.uniform(-1, 1)) / rng.uniform(1.5, 20))
        return torch.where(wave > rng.uniform(-0.7, 0.7), colour, torch.rand(3, 1, 1, device=device) * 255)
    if kind == "text":
        x = torch.full((3, H, W), rng.choice([250.0, 240, 25, 35]), device=device)
        for row in range(8, H - 10, rng.randrange(9, 18)):
            at = rng.randrange(5, 60)
            while at < W - 30 and rng.random() < 0.93:
                wide = rng.randrange(6, 40)
                x[:, row : row + 5, at : at + wide] = rng.choice([20.0, 60, 200]) + (torch.rand(1, 5, min(wide, W - at), device=device) - 0.5) * 80
                at += wide + 6
        return x
    x = _texture(rng, device)
    if kind == "leaves":
        return _leaves(rng, x, device)
    if kind == "grass":
        x = x * 0.15 + torch.tensor([48.0, 124, 58], device=device).view(3, 1, 1) * rng.uniform(0.7, 1.3)
    if kind in ("drawing", "grass"):
        for _ in range(rng.randrange(3, 25)):
            x0, y0 = rng.randrange(W), rng.randrange(H)
            fill = torch.rand(3, 1, 1, device=device) * 255
            if rng.random() < 0.6:
                x[:, y0 : y0 + rng.randrange(4, 120), x0 : x0 + rng.randrange(4, 200)] = fill
            else:
                x = torch.where(((xx - x0) / rng.uniform(3, 70)) ** 2 + ((yy - y0) / rng.uniform(3, 70)) ** 2 < 1, fill, x)
    if kind == "portrait":
        cx, cy, s = rng.uniform(0.2, 0.8) * W, rng.uniform(0.3, 0.7) * H, rng.uniform(30, 90)
        skin = torch.tensor(rng.choice(SKIN), device=device).view(3, 1, 1)
        body = ((xx - cx) / (s * 1.6)) ** 2 + ((yy - cy - 2 * s) / (s * 1.5)) ** 2 < 1
        head = ((xx - cx) / (s * 0.7)) ** 2 + ((yy - cy) / (s * 0.95)) ** 2 < 1
        x = torch.where(head, skin + (x - 127) * 0.25, torch.where(body, colour + (x - 127) * 0.3, x))
    return x


def bank(count: int, seed: int, device: str) -> Tensor:
    """[count, 3, H, W] uint8."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    kinds = ["noise", "flat", "bars", "gradient", "text", "text", "drawing", "drawing", "drawing", "grass", "grass", "portrait", "portrait", "texture", "texture", "texture",
             "mosaic", "mosaic", "dots", "dots", "stripes", "leaves", "leaves", "leaves", "leaves", "leaves", "leaves"]  # fmt: skip
    pictures = []
    for _ in range(count):
        x = _picture(rng, rng.choice(kinds), device).float()
        grey = x.mean(0, keepdim=True)
        pictures.append((grey + (x - grey) * rng.choice([1, rng.random()])).clamp(0, 255).to(torch.uint8))  # photographs are seldom of pure colours
    return torch.stack(pictures)


def to_gpu(x: np.ndarray, device: Any) -> Tensor:
    """A copy on the device, for which the computer does not wait."""
    t = torch.from_numpy(x)
    return (t.pin_memory() if "cuda" in str(device) else t).to(device, non_blocking=True)


def insert(windows: Tensor, codes: np.ndarray, bank_: Tensor) -> None:
    """Puts strange pictures where codes are -1, still or drifting, and darkness where they are -2. windows is [B, n, 3, H, W] in 0..255."""
    n, device = windows.shape[1], windows.device
    strange, dark = (to_gpu(np.flatnonzero(codes == code), device) for code in (-1, -2))
    if len(strange):
        picked = bank_[torch.randint(len(bank_), (len(strange),), device=device)].float()
        if random.random() < 0.3:
            picked = picked[:, torch.randperm(3, device=device)]
        moving = picked[:, None].expand(-1, n, -1, -1, -1) + torch.randn(len(strange), n, 1, 1, 1, device=device) * 2
        if random.random() < 0.5:
            dy, dx = (random.randrange(-6, 7) for _ in range(2))
            moving = torch.stack([torch.roll(moving[:, j], (dy * j, dx * j), (2, 3)) for j in range(n)], 1)
        windows[strange] = moving.clamp(0, 255)
    if len(dark):
        windows[dark] = torch.rand(len(dark), 1, 1, 1, 1, device=device) * 14
