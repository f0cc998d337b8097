"""Wordings: text files of patterns in two languages, filled with names, numbers and scores."""

import itertools
import re
from collections.abc import Iterator, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

HERE = Path(__file__).parent / "words"
LANGUAGES = ("en", "es")
REGISTERS = ("calm", "lively", "boil")
SILENCE = "..."
# Last words of the hint, as agent/prompt.go writes it, and the words that it allows.
HINTS = {"Say it in six words or fewer.": 6, "One short sentence.": 10, "One or two short sentences.": 18, "": 18}
SHARED = ("cannot", "unknown", "dark")  # wordings of all worlds, in the match's file
STYLES = ("all", "short", "boil", "calm")  # orders that change how it is said

_ONES = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(),
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete dieciocho diecinueve "
          "veinte veintiuno veintidós veintitrés veinticuatro veinticinco veintiséis veintisiete veintiocho veintinueve".split(),
}  # fmt: skip
_TENS = {"en": "_ _ twenty thirty forty fifty sixty seventy eighty ninety", "es": "_ _ _ treinta cuarenta cincuenta sesenta setenta ochenta noventa"}
_JOIN = {"en": "-", "es": " y "}
_LITTLE = frozenset("the a an to of for me it is are el la los las un una de me lo se por".split())
_NIL = {"en": "nil", "es": "cero"}


T = TypeVar("T")
_LOW, _WORD = (1 << 128) - 1, (1 << 64) - 1


class Random:
    """PCG-DXSM, and the draws of math/rand/v2 of Go: rand.New(rand.NewPCG(seed, 0)) gives the same."""

    def __init__(self, seed: int) -> None:
        self.state = seed << 64

    def _next(self) -> int:
        self.state = s = (self.state * 47026247687942121848144207491837523525 + 117397592171526113268558934119004209487) & _LOW
        high = s >> 64
        high = ((high ^ high >> 32) * 0xDA942042E4DD58B5) & _WORD
        return ((high ^ high >> 48) * (s & _WORD | 1)) & _WORD

    def below(self, n: int) -> int:
        """From 0 to n-1, as IntN."""
        if n & (n - 1) == 0:
            return self._next() & (n - 1)
        product = (self._next() >> 32) * n
        while product & 0xFFFFFFFF < (1 << 32) % n:
            product = (self._next() >> 32) * n
        return product >> 32

    def random(self) -> float:
        """From 0 to under 1, as Float64."""
        return (self._next() & ((1 << 53) - 1)) / (1 << 53)

    def uniform(self, a: float, b: float) -> float:
        """From a to b."""
        return a + (b - a) * self.random()

    def randrange(self, a: int, b: int | None = None) -> int:
        """From a to b-1, or from 0 to a-1."""
        return self.below(a) if b is None else a + self.below(b - a)

    def choice(self, some: Sequence[T]) -> T:
        """One of some."""
        return some[self.below(len(some))]

    def weighted(self, some: Sequence[T], weights: Sequence[int]) -> T:
        """One of some, as often as its weight says."""
        x = self.random() * sum(weights)
        for value, weight in zip(some, weights, strict=True):
            if x < weight:
                return value
            x -= weight
        return some[-1]

    def shuffled(self, some: Sequence[T]) -> Iterator[T]:
        """Some in any order, drawn as they are asked for."""
        left = list(some)
        for i in range(len(left)):
            k = i + self.below(len(left) - i)
            left[i], left[k] = left[k], left[i]
            yield left[i]

    def sample(self, some: Sequence[T], k: int) -> list[T]:
        """k of some, in any order."""
        return list(itertools.islice(self.shuffled(some), k))

    def shuffle(self, some: MutableSequence[T]) -> None:
        """Puts some in any order, as Shuffle."""
        for i in range(len(some) - 1, 0, -1):
            k = self.below(i + 1)
            some[i], some[k] = some[k], some[i]


@dataclass(slots=True)
class News:
    """What is worth saying: a kind of wording, what fills it, and what makes it another piece of news than the last of its kind."""

    kind: str
    team: int | None = None
    number: int | None = None
    key: Any = None
    zone: str = ""
    at: float = 0.0  # when it happened
    slots: dict[str, str] = field(default_factory=dict)
    also: "News | None" = None  # what else the same comment tells
    known: frozenset[tuple[str, Any]] = frozenset()  # kinds and keys of what this comment and the two before it told


@dataclass(slots=True)
class Order:
    """What a person asked for: its kind and words, and who is named in it."""

    kind: str
    text: str
    team: int | None = None
    number: int | None = None
    who: str = ""


def number(n: int, lang: str = "en") -> str:
    """A number from 0 to 99 in words."""
    ones = _ONES[lang]
    if n < len(ones):
        return ones[n]
    return _TENS[lang].split()[n // 10] + ("" if n % 10 == 0 else _JOIN[lang] + ones[n % 10])


def before_noun(n: int, lang: str) -> str:
    """A number from 0 to 99 in words, before a masculine noun."""
    text = number(n, lang)
    return text if lang == "en" else re.sub(r"veintiuno$", "veintiún", text).removesuffix("o") if n % 10 == 1 and n != 11 else text


def counted(n: int, lang: str, one: str, many: str, none: str) -> str:
    """ "three goals", "one goal", "no goals"."""
    return none if n == 0 else f"{before_noun(n, lang)} {one if n == 1 else many}"


def goals(n: int, lang: str = "en") -> str:
    """A number of goals in words."""
    return _NIL[lang] if n == 0 else number(n, lang)


def result(score: tuple[int, int], lang: str = "en") -> str:
    """A score as it is spoken: the larger number first, "two-one", "one-all", "nil-nil"; "dos a uno"."""
    a, b = max(score), min(score)
    if lang == "es":
        return f"{goals(a, lang)} a {goals(b, lang)}"
    return f"{goals(a)}-all" if a == b and a > 0 else f"{goals(a)}-{goals(b)}"


@lru_cache(20000)
def expand(pattern: str) -> list[str]:
    """Every text of a pattern with (a|b) in it; parentheses do not nest."""
    pieces = re.split(r"\(([^()]*\|[^()]*)\)", pattern)
    parts = [[p] if i % 2 == 0 else p.split("|") for i, p in enumerate(pieces)]
    return [t for t in (" ".join("".join(c).split()) for c in itertools.product(*parts)) if t]


def _lines(name: str) -> list[str]:
    return [line for line in (HERE / f"{name}.txt").read_text().splitlines() if line and not line.startswith("#")]


@lru_cache
def sayings(name: str) -> dict[str, dict[str, list[str]]]:
    """Kind -> register -> templates of a file; a register without templates of its own has those of "any" or a calmer one."""
    out: dict[str, dict[str, list[str]]] = {}
    pool: list[str] = []
    for line in _lines(name):
        if head := re.fullmatch(r"\[(\w+) (\w+)\]", line):
            pool = out.setdefault(head[1], {}).setdefault(head[2], [])
        else:
            pool.extend(expand(line))
    for by in out.values():
        calm = by.get("any") or by["calm"]
        by.setdefault("calm", calm)
        by.setdefault("lively", by["calm"])
        by.setdefault("boil", by["lively"])
    return out


def _sections(name: str) -> Iterator[tuple[str, int, str, str]]:
    """The lines of a file about orders, with their kind, 1 if they are held out of training, and what they are: "X" for nouns and texts, "W" for clauses."""
    kind, held, slot = "", 0, "X"
    for line in _lines(name):
        if head := re.fullmatch(r"\[(\w+)\]", line):
            kind, held, slot = head[1], 0, "X"
        elif line == "= held out":
            held, slot = 1, "X"
        elif line == "when":
            slot = "W"
        else:
            yield kind, held, slot, line


@lru_cache
def orders(name: str) -> dict[str, tuple[list[list[str]], list[str]]]:
    """Kind -> (texts of each pattern for training, texts held out of it) of a file of orders."""
    out: dict[str, tuple[list[list[str]], list[str]]] = {}
    for kind, held, _, line in _sections(f"orders.{name}"):
        trained, tests = out.setdefault(kind, ([], []))
        if held:
            tests += expand(line)
        else:
            trained.append(expand(line))
    return out


@lru_cache
def topics(name: str) -> dict[str, tuple[dict[str, list[str]], dict[str, list[str]]]]:
    """Kind -> nouns and clauses ("X", "W") for the frames, for training and held out of it."""
    out: dict[str, tuple[dict[str, list[str]], dict[str, list[str]]]] = {}
    for kind, held, slot, line in _sections(f"topics.{name}"):
        out.setdefault(kind, ({"X": [], "W": []}, {"X": [], "W": []}))[held][slot].append(line)
    return out


@lru_cache
def frames(lang: str) -> tuple[list[str], list[str]]:
    """Frames for training and held out of it."""
    out: tuple[list[str], list[str]] = ([], [])
    for _, held, _, line in _sections(f"frames.{lang}"):
        out[held].append(line)
    return out


@lru_cache
def _barred(name: str, kind: str) -> frozenset[str]:
    return frozenset(bare(t) for t in orders(name).get(kind, ([], []))[1])


@lru_cache
def kinds(name: str) -> list[str]:
    """The kinds of orders."""
    return list(dict.fromkeys([*orders(name), *topics(name)]))


def order(rng: Random, world: str, lang: str, kind: str, held_out: bool = False) -> str:
    """One wording of an order: a pattern of its own, or a frame around its topic. Each pattern is as likely as another, however many
    texts it has. Held out of training is a pattern, a frame, or a topic's name."""
    text = ""
    for _ in range(20):
        text = _order(rng, f"{world}.{lang}", kind, held_out)
        if not held_out and rng.random() < 0.2:
            text = slip(rng, text)
        if held_out or bare(text) not in _barred(f"{world}.{lang}", kind):
            break
    if not held_out and rng.random() < 0.15:  # as people type
        text = text.rstrip(".!?").lstrip("¿¡")
        text = text[:1].lower() + text[1:] if rng.random() < 0.5 and not text.startswith(("I ", "I'", "{T}")) else text
    return text


def slip(rng: Random, text: str) -> str:
    """A text with one slip, as people make them: an article or the like is left out, or two letters of a longer word change places. Slots stay whole."""
    words = text.split(" ")
    little = [k for k, w in enumerate(words) if w in _LITTLE]
    long = [k for k, w in enumerate(words) if w.isalpha() and len(w) > 3]
    if little and len(words) > 4 and rng.random() < 0.5:
        del words[rng.choice(little)]
    elif long:
        k = rng.choice(long)
        at = rng.randrange(1, len(words[k]) - 1)
        words[k] = words[k][:at] + words[k][at : at + 2][::-1] + words[k][at + 2 :]
    return " ".join(words)


def bare(text: str) -> str:
    """A text without capitals and marks at its ends."""
    return text.rstrip(".!? ").lstrip("¿¡").lower().removesuffix(", please").removesuffix(", por favor")


def _order(rng: Random, name: str, kind: str, held_out: bool) -> str:
    trained, held = orders(name).get(kind, ([], []))
    topic = topics(name).get(kind)
    framed = 0.6 if held_out else 0.8 if topic and topic[0]["X"] else 0.3
    if not topic or rng.random() > framed and (held if held_out else trained):
        return rng.choice(held) if held_out else rng.choice(rng.choice(trained))
    usable = [[f for f in fs if topic[0]["X"] or "{X}" not in f] for fs in frames(name.split(".")[1])]
    new_frame = held_out and bool(usable[1]) and rng.random() < 0.5
    frame = rng.choice(usable[new_frame])
    names = topic[held_out and not new_frame]["X" if "{X}" in frame else "W"]
    text = re.sub(r"\{[XW]\}", lambda _: rng.choice(expand(rng.choice(names))), rng.choice(expand(frame)))
    return re.sub(r"^([¿¡]*)(\w)", lambda m: m[1] + m[2].upper(), text)


def rule(rng: Random, world: str, lang: str, kind: str, held_out: bool = False) -> str:
    """An alert rule in free words: a clause about a topic."""
    return rng.choice(expand(rng.choice(topics(f"{world}.{lang}")[kind][held_out]["W"])))


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
    if slots.get("m") in ("one", "un"):
        text = text.replace("minutes", "minute").replace("minutos", "minuto")
    return re.sub(r"(^[¿¡]?|[.!?] [¿¡]?)([a-zñáéíóú])", lambda m: m[1] + m[2].upper(), text)


def both(first: str, second: str, lang: str) -> str:
    """Two wordings in one sentence where the first is one, else in two."""
    if re.search(r"[.!?].", first) or first[0] == "¡" or second[0] == "¡":
        return first + " " + second
    second = second[0].lower() + second[1:]
    return first[:-1] + (", and " if lang == "en" else " e " if re.match(r"h?i(?!e)", second) else " y ") + second


def say(rng: Random, name: str, kind: str, register: str, slots: dict[str, str], limit: int = 0, avoid: str = "") -> str:
    """A wording of a kind in a file, of at most limit words where there is one (0 means no limit), and not the one to avoid."""
    pool = sayings("match." + name.split(".")[1] if kind in SHARED else name)[kind][register]
    best = ""
    for template in rng.shuffled(pool):
        text = fill(template, slots)
        if text is None or text == avoid:
            continue
        if not limit or len(text.split()) <= limit:
            return text
        if not best or len(text) < len(best):
            best = text
    return best or avoid
