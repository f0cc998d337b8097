"""The network in MiniCPM-o 4.5's shape, small, with the parameter names of the published checkpoint; and its export in the published layout."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention


@dataclass
class Config:
    """Sizes. scale and patch are the preprocessor's scale_resolution and the tower's patch_size."""

    scale: int = 336
    patch: int = 28
    grid: int = 16
    vision: int = 192
    vision_layers: int = 5
    vision_heads: int = 3
    vision_ffn: int = 768
    queries: int = 16
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 448
    vocab: int = 0
    theta: float = 10000.0

    def size(self, width: int, height: int) -> tuple[int, int]:
        """What the engine resizes a picture to: about scale x scale pixels, multiples of the patch (find_best_resize of the published processor)."""
        h = int(self.scale / math.sqrt(width / height))
        w = int(h * width / height)
        return tuple(max(round(x / self.patch) * self.patch, self.patch) for x in (w, h))  # type: ignore[return-value]


def _split(x: Tensor, heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


class Attention(nn.Module):
    """Attention of the tower."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(d, d) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        o = F.scaled_dot_product_attention(*(_split(p(x), self.heads) for p in (self.q_proj, self.k_proj, self.v_proj)))
        return self.out_proj(o.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    """Feed-forward layer of the tower."""

    def __init__(self, d: int, f: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, f), nn.Linear(f, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class TowerLayer(nn.Module):
    """A layer of the tower."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(c.vision, c.vision_heads), MLP(c.vision, c.vision_ffn)
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(c.vision, eps=1e-6), nn.LayerNorm(c.vision, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class Tower(nn.Module):
    """SigLIP with positions by place on a fixed grid, as MiniCPM takes pictures of any shape."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.patch_embedding = nn.Conv2d(3, c.vision, c.patch, c.patch)
        self.embeddings.position_embedding = nn.Embedding(c.grid**2, c.vision)
        self.encoder.layers = nn.ModuleList(TowerLayer(c) for _ in range(c.vision_layers))
        self.post_layernorm = nn.LayerNorm(c.vision, eps=1e-6)

    def forward(self, pictures: Tensor) -> tuple[Tensor, int, int]:
        """[B, 3, H, W] in -1..1 to [B, h*w, vision], h and w."""
        p, g = self.c.patch, self.c.grid
        b, _, height, width = pictures.shape
        h, w = height // p, width // p
        x = pictures.view(b, 3, h, p, w, p).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w, 3 * p * p)
        conv = self.embeddings.patch_embedding
        x = F.linear(x, conv.weight.view(self.c.vision, -1), conv.bias)
        rows, cols = torch.arange(h, device=x.device) * g // h, torch.arange(w, device=x.device) * g // w
        x = x + self.embeddings.position_embedding((rows[:, None] * g + cols[None]).reshape(-1))
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x), h, w


def _positions(d: int, h: int, w: int, device: torch.device) -> Tensor:
    """The resampler's two-dimensional sine and cosine positions [h*w, d]."""
    half = d // 2
    omega = 10000.0 ** (-torch.arange(half // 2, device=device, dtype=torch.float32) / (half // 2))

    def along(n: int) -> Tensor:
        a = torch.arange(n, device=device)[:, None] * omega
        return torch.cat([torch.sin(a), torch.cos(a)], 1)

    return torch.cat([along(w)[None].expand(h, w, half), along(h)[:, None].expand(h, w, half)], -1).reshape(h * w, d)


class CrossAttention(nn.Module):
    """Parameters of torch.nn.MultiheadAttention, by its names."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.randn(3 * d, d) / math.sqrt(d))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d))
        self.out_proj = nn.Linear(d, d)


class Resampler(nn.Module):
    """Patches to a fixed number of embeddings."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        d = c.hidden
        self.heads = max(1, d // 128)
        self.query = nn.Parameter(torch.randn(c.queries, d))
        self.kv_proj = nn.Linear(c.vision, d, bias=False)
        self.attn = CrossAttention(d)
        self.ln_q, self.ln_kv, self.ln_post = (nn.LayerNorm(d, eps=1e-6) for _ in range(3))
        self.proj = nn.Parameter(torch.randn(d, d) / math.sqrt(d))

    def forward(self, x: Tensor, h: int, w: int) -> Tensor:
        d = self.query.shape[1]
        kv = self.ln_kv(self.kv_proj(x))
        k = kv + _positions(d, h, w, x.device).to(kv.dtype)
        weight, bias = self.attn.in_proj_weight.chunk(3), self.attn.in_proj_bias.chunk(3)
        q = F.linear(self.ln_q(self.query), weight[0], bias[0])[None].expand(len(x), -1, -1)
        o = F.scaled_dot_product_attention(*(_split(t, self.heads) for t in (q, F.linear(k, weight[1], bias[1]), F.linear(kv, weight[2], bias[2]))))
        o = self.attn.out_proj(o.transpose(1, 2).reshape(len(x), -1, d))
        return self.ln_post(o) @ self.proj.to(o.dtype)


class RMSNorm(nn.Module):
    """Root mean square norm."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-6)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


UNITS = 120  # of a row's unit are its largest weight in 4 bits, so that int8 holds every product of a code and a step


def four_bits(weight: Tensor) -> Tensor:
    """A matrix in 4 bits, as the engine's int4 has it: blocks of 32 inputs, whose largest weight takes the code -8. A block's step is 1 to 15 units of its row,
    rounded down, so that a checkpoint of int8 rows holds just these weights."""
    blocks = weight.reshape(len(weight), -1, 32)
    largest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    unit = largest.abs().amax(1, keepdim=True).clamp(min=1e-6) / UNITS
    step = (largest.abs() / (8 * unit) + 1e-3).floor().clamp(min=1) * unit * -largest.sign()
    return ((blocks / torch.where(step == 0, 1, step)).round().clamp(-8, 7) * step).view_as(weight)


class Rounded(nn.Linear):
    """A linear layer that trains with its weights in 4 bits."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        return F.linear(x, w + (four_bits(w) - w).detach() if self.training else w)


class DecoderAttention(nn.Module):
    """Qwen3's attention: grouped queries, norms of queries and keys, rotary positions."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.q_proj, self.o_proj = Rounded(c.hidden, c.heads * c.head_dim), Rounded(c.heads * c.head_dim, c.hidden)
        self.k_proj, self.v_proj = (Rounded(c.hidden, c.kv_heads * c.head_dim) for _ in range(2))
        self.q_norm, self.k_norm = RMSNorm(c.head_dim), RMSNorm(c.head_dim)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | BlockMask | None) -> Tensor:
        b, t, _ = x.shape
        q = _rotate(self.q_norm(self.q_proj(x).view(b, t, self.c.heads, -1)), cos, sin).transpose(1, 2)
        k = _rotate(self.k_norm(self.k_proj(x).view(b, t, self.c.kv_heads, -1)), cos, sin).transpose(1, 2)
        v = _split(self.v_proj(x), self.c.kv_heads)
        q, k = q.to(v.dtype), k.to(v.dtype)
        if isinstance(mask, BlockMask):
            o = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        else:
            o = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        return self.o_proj(o.transpose(1, 2).reshape(b, t, -1))


class GatedMLP(nn.Module):
    """Qwen3's feed-forward layer."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (Rounded(c.hidden, c.ffn) for _ in range(2))
        self.down_proj = Rounded(c.ffn, c.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """A layer of the language model."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(c.hidden), RMSNorm(c.hidden)
        self.self_attn, self.mlp = DecoderAttention(c), GatedMLP(c)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | BlockMask | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Qwen3."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c, self.model = c, nn.Module()
        self.model.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.model.layers = nn.ModuleList(DecoderLayer(c) for _ in range(c.layers))
        self.model.norm = RMSNorm(c.hidden)
        self.lm_head = nn.Linear(c.hidden, c.vocab, bias=False)

    def forward(self, x: Tensor, place: Tensor | None = None, mask: Tensor | BlockMask | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings [B, T, hidden] to hidden states of the same shape, what the last layer reads, and what the middle one does. place [B, T] and mask are for
        rows with several texts (see shared)."""
        inverse = self.c.theta ** (-torch.arange(0, self.c.head_dim, 2, device=x.device, dtype=torch.float32) / self.c.head_dim)
        at = torch.arange(x.shape[1], device=x.device)[None] if place is None else place
        a = (at[..., None] * inverse).repeat(1, 1, 2)[:, :, None]
        cos, sin = a.cos().to(x.dtype), a.sin().to(x.dtype)
        states = [x]
        for layer in self.model.layers:
            states.append(layer(states[-1], cos, sin, mask))
        return self.model.norm(states[-1]), states[-2], states[len(states) // 2]


def shared(branch: Tensor) -> Tensor | BlockMask:
    """The mask of rows in which several texts stand behind the beginning that they share: branch [B, T] is the number of each token's text, 0 for the
    beginning, which all see. For the GPU in blocks, since whole masks are slow there."""

    def seen(b: Tensor, _: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (q >= k) & ((branch[b, k] == 0) | (branch[b, q] == branch[b, k]))

    rows, length = branch.shape
    if branch.is_cuda:
        return create_block_mask(seen, rows, None, length, length, branch.device)
    b, q, k = torch.arange(rows)[:, None, None], torch.arange(length)[:, None], torch.arange(length)
    return seen(b, b, q, k)[:, None]


class Nano(nn.Module):
    """The whole model."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.vpm, self.resampler, self.llm = Tower(c), Resampler(c), Decoder(c)
        ends = ("out_proj.weight", "o_proj.weight", "fc2.weight", "down_proj.weight")
        for name, p in self.named_parameters():
            if p.dim() == 2 and "norm" not in name and name != "resampler.query":
                depth = c.vision_layers if name.startswith("vpm") else c.layers
                std = 1 / math.sqrt(p.shape[1]) / (math.sqrt(2 * depth) if name.endswith(ends) else 1)
                nn.init.normal_(p, 0, 0.02 if name.endswith("lm_head.weight") else std)
        nn.init.normal_(self.llm.model.embed_tokens.weight, 0, 0.5)
        nn.init.normal_(self.vpm.embeddings.position_embedding.weight, 0, 0.3)

    def look(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """The tower's patches [B, patches, vision], and the embeddings [B, queries, hidden] that the language model reads."""
        x, h, w = self.vpm(pictures)
        return x, self.resampler(x, h, w)

    def embed(self, ids: Tensor, pictures: Tensor, ends: Tensor) -> Tensor:
        """Embeddings of prompts [B, T]: pictures [N, queries, hidden] go before the places ends [N] of the flattened ids."""
        x = self.llm.model.embed_tokens(ids).to(pictures.dtype)
        places = ends[:, None] + torch.arange(-pictures.shape[1], 0, device=ids.device)
        return x.flatten(0, 1).index_copy(0, places.flatten(), pictures.flatten(0, 1)).view_as(x)


def export(model: Nano, folder: Path, tokenizer: Path) -> None:
    """Writes the checkpoint in the published layout: fp16 tensors, or int8 rows with scales as compressed-tensors' "int-quantized" format has them."""
    c = model.c
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, p in model.state_dict().items():
        p = p.detach().float().cpu()
        units = 127
        if name.startswith("llm.model.layers.") and p.dim() == 2:
            p, units = four_bits(p), UNITS
        if p.dim() >= 2 and name.endswith("weight") and "position" not in name:
            rows = p.flatten(1)
            scale = (rows.abs().amax(1, keepdim=True) / units).clamp(min=1e-7).to(torch.float16)
            tensors[name] = (rows / scale.float()).round().clamp(-127, 127).to(torch.int8).view(p.shape)
            tensors[name + "_scale"] = scale
        else:
            tensors[name] = p.to(torch.float16).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    ids = {a["content"]: a["id"] for a in json.loads(tokenizer.read_text())["added_tokens"]}
    end, text_end = ids["<|im_end|>"], ids["<|endoftext|>"]
    files = {
        "config.json": {
            "model_type": "minicpmo", "architectures": ["MiniCPMO"], "version": 4.5, "torch_dtype": "float16", "hidden_size": c.hidden,
            "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
            "intermediate_size": c.ffn, "vocab_size": c.vocab, "rms_norm_eps": 1e-6, "rope_theta": c.theta, "max_position_embeddings": 4096,
            "tie_word_embeddings": False, "hidden_act": "silu", "attention_bias": False, "query_num": c.queries, "drop_vision_last_layer": False,
            "use_image_id": True,
            "vision_config": {"model_type": "siglip_vision_model", "hidden_size": c.vision, "num_hidden_layers": c.vision_layers,
                              "num_attention_heads": c.vision_heads, "intermediate_size": c.vision_ffn, "image_size": c.grid * c.patch,
                              "patch_size": c.patch, "layer_norm_eps": 1e-6, "hidden_act": "gelu_pytorch_tanh"},
            "quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
                "targets": ["Linear", "Embedding", "Conv2d"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}}},
        },
        "tokenizer_config.json": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": "<unk>",
                                  "add_bos_token": False, "add_prefix_space": False, "bad_token_ids": []},
        "generation_config.json": {"bos_token_id": text_end, "eos_token_id": [end, text_end], "pad_token_id": text_end},
        "preprocessor_config.json": {"max_slice_nums": 1, "scale_resolution": c.scale, "patch_size": c.patch, "image_feature_size": c.queries,
                                     "use_image_id": True, "slice_mode": True, "version": 4.5, "norm_mean": [0.5] * 3, "norm_std": [0.5] * 3},
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    (folder / "tokenizer.json").write_text(tokenizer.read_text())
