"""Wordings: text files of patterns, filled with names, numbers and scores."""

import itertools
import random
import re
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent / "words"
REGISTERS = ("calm", "lively", "boil")
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
)
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def number(n: int) -> str:
    """A number from 0 to 99 in words."""
    if n < 20:
        return _ONES[n]
    return _TENS[n // 10] + ("" if n % 10 == 0 else "-" + _ONES[n % 10])


def goals(n: int) -> str:
    """A number of goals in words."""
    return "nil" if n == 0 else number(n)


def counted(n: int, one: str) -> str:
    """"three goals", "one goal", "no goals"."""
    return f"{'no' if n == 0 else number(n)} {one}{'' if n == 1 else 's'}"


def result(score: tuple[int, int]) -> str:
    """A score as it is spoken: the larger number first, "two-one", "one-all", "nil-nil"."""
    a, b = max(score), min(score)
    return f"{goals(a)}-all" if a == b and a > 0 else f"{goals(a)}-{goals(b)}"


@lru_cache(20000)
def expand(pattern: str) -> list[str]:
    """Every text of a pattern with (a|b) in it; parentheses do not nest."""
    pieces = re.split(r"\(([^()]*\|[^()]*)\)", pattern)
    parts = [[p] if i % 2 == 0 else p.split("|") for i, p in enumerate(pieces)]
    return [t for t in ("".join(c).strip() for c in itertools.product(*parts)) if t]


@lru_cache
def sayings(name: str) -> dict[str, dict[str, list[str]]]:
    """Kind -> register -> templates of a file of wordings; a register without templates of its own has those of "any" or a calmer one."""
    out: dict[str, dict[str, list[str]]] = {}
    pool: list[str] = []
    for line in (HERE / name).read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+) (\w+)\]", line):
            pool = out.setdefault(head[1], {}).setdefault(head[2], [])
        elif line and not line.startswith("#"):
            pool.extend(expand(line))
    for by in out.values():
        calm = by.get("any") or by["calm"]
        by.setdefault("calm", calm)
        by.setdefault("lively", by["calm"])
        by.setdefault("boil", by["lively"])
    return out


@lru_cache
def orders(name: str) -> dict[str, tuple[list[list[str]], list[str]]]:
    """Kind -> (texts of each pattern for training, texts held out of it) of a file of orders."""
    out: dict[str, tuple[list[list[str]], list[str]]] = {}
    held = False
    for line in (HERE / name).read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            out[head[1]], held = ([], []), False
        elif line == "= held out":
            held = True
        elif line and not line.startswith("#"):
            kind = list(out)[-1]
            if held:
                out[kind][1].extend(expand(line))
            else:
                out[kind][0].append(expand(line))
    return out


@lru_cache
def topics(name: str) -> dict[str, tuple[dict[str, list[str]], dict[str, list[str]]]]:
    """Kind -> nouns and clauses ("X", "W") for the frames, for training and held out of it."""
    out: dict[str, tuple[dict[str, list[str]], dict[str, list[str]]]] = {}
    held, slot = 0, "X"
    for line in (HERE / name).read_text().splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            out[head[1]], held, slot = ({"X": [], "W": []}, {"X": [], "W": []}), 0, "X"
        elif line == "= held out":
            held, slot = 1, "X"
        elif line == "when":
            slot = "W"
        elif line and not line.startswith("#"):
            out[list(out)[-1]][held][slot].append(line)
    return out


@lru_cache
def frames(name: str) -> tuple[list[str], list[str]]:
    """Frames for training and held out of it."""
    lines = [x for x in (HERE / name).read_text().splitlines() if x and not x.startswith("#")]
    at = lines.index("= held out")
    return lines[:at], lines[at + 1 :]


def order(rng: random.Random, name: str, kind: str, held_out: bool = False) -> str:
    """One wording of an order: a pattern of its own, or a frame around its topic. Each pattern is as likely as another, however many
    texts it has. Held out of training is a pattern, a frame, or a topic's name."""
    for _ in range(20):
        text = _order(rng, name, kind, held_out)
        if held_out or bare(text) not in {bare(t) for t in orders(f"orders.{name}")[kind][1]}:
            break
    if not held_out and rng.random() < 0.15:  # as people type
        text = text.rstrip(".!?")
        text = text[:1].lower() + text[1:] if rng.random() < 0.5 and not text.startswith(("I ", "I'", "{T}")) else text
    return text


def bare(text: str) -> str:
    """A text without capitals and marks at its end."""
    return text.rstrip(".!? ").lower().removesuffix(", please")


def _order(rng: random.Random, name: str, kind: str, held_out: bool) -> str:
    trained, held = orders(f"orders.{name}")[kind]
    topic = topics(f"topics.{name}").get(kind)
    if not topic or rng.random() > (0.6 if held_out else 0.8):
        return rng.choice(held) if held_out else rng.choice(rng.choice(trained))
    new_frame = held_out and rng.random() < 0.5
    frame = rng.choice(frames("frames." + name.split(".", 1)[1])[new_frame])
    names = topic[held_out and not new_frame]["X" if "{X}" in frame else "W"]
    text = re.sub(r"\{[XW]\}", lambda _: rng.choice(expand(rng.choice(names))), rng.choice(expand(frame)))
    return text[:1].upper() + text[1:]


def fill(template: str, slots: dict[str, str]) -> str | None:
    """The template with its slots filled and its sentences begun with capitals; None if a slot has no value."""
    missing = False

    def value(m: re.Match[str]) -> str:
        nonlocal missing
        v = slots.get(m[1])
        missing = missing or v is None
        return v or ""

    text = re.sub(r"\{(\w+)\}", value, template)
    if missing:
        return None
    if slots.get("m") == "one":
        text = text.replace("minutes", "minute")
    return re.sub(r"(^|[.!?:] )([a-z])", lambda m: m[1] + (m[2].upper() if m[1] != ": " else m[2]), text)


def say(
    rng: random.Random, file: str, kind: str, register: str, slots: dict[str, str], limit: int = 0, avoid: str = ""
) -> str:
    """A wording of a kind, of at most limit words where there is one (0 means no limit), and not the one to avoid."""
    pool = sayings(file)[kind][register][:]
    rng.shuffle(pool)
    best = ""
    for template in pool:
        text = fill(template, slots)
        if text is None or text == avoid:
            continue
        if not limit or len(text.split()) <= limit:
            return text
        if not best or len(text) < len(best):
            best = text
    return best or avoid
