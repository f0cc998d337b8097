"""Examples for training: windows of the worlds' truth, each with a prompt as the engine writes it and a truthful answer."""

import random
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import match
import words
from match import SILENCE, Fact, News, Order
from tokenizers import Tokenizer

PROFILES = Path(__file__).parents[3] / "configs" / "profiles"
FPS = 5
UNKNOWN, DARK = "unknown", "dark"


@lru_cache
def profiles() -> dict[str, str]:
    """The built-in profiles' prompts by name."""
    out = {}
    for path in sorted(PROFILES.glob("*.yaml")):
        body = path.read_text().split("prompt: |\n", 1)[1]
        out[path.stem] = "\n".join(line[2:] for line in body.splitlines()).strip()
    return out


def prompt_text(order: str, comment: str, age: float, hint: str) -> str:
    """The text after the pictures, as promptText of agent/prompt.go writes it."""
    out = ""
    if comment:
        out += f'{age:.0f} seconds ago you said: "{comment}". Do not say it again; tell only what is new since then.\n'
    if hint:
        out += hint + "\n"
    if order:
        out += f"Focus: {order}\n"
    return out + "Comment on the newest picture. If nothing new happened, answer only with " + SILENCE


@dataclass
class Text:
    """One prompt and its answer about a window."""

    system: str
    text: str
    answer: str
    order: str = ""


class Prompts:
    """Token ids of prompts, as inference/minicpmo writes them."""

    def __init__(self, path: str, queries: int) -> None:
        self.tok = Tokenizer.from_file(path)
        self.queries = queries
        self.unk, self.start, self.end, self.image, self.image_end, self.think, self.think_end, self.speech, self.pad = (
            self.tok.token_to_id(t)
            for t in "<unk> <|im_start|> <|im_end|> <image> </image> <think> </think> <|tts_bos|> <|endoftext|>".split()
        )
        self.cached = lru_cache(4096)(self.encode)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""
        return self.tok.encode(text, add_special_tokens=False).ids

    def ids(self, t: Text, pictures: int, speech: bool) -> list[int]:
        """The whole prompt, up to where the answer begins: the chat template, or the streaming one with the parts of a message joined."""
        line, lines = self.cached("\n"), self.cached("\n\n")
        system = self.cached("system\n" + t.system + "\n\nAnswer in English.")
        ids = [self.start, *system, self.end, *line, self.start, *self.cached("user\n")]
        for i in range(pictures):
            ids += [self.image, *[self.unk] * self.queries, self.image_end]
            ids += line if not speech else []
        ids += [*self.encode(t.text), self.end, *line, self.start, *self.cached("assistant\n"), self.think, *lines, self.think_end, *lines]
        return ids + [self.speech] if speech else ids


def _system(rng: random.Random) -> tuple[str, str]:
    """A profile's name and prompt; now and then one that no file has, since people write their own."""
    all_ = profiles()
    name = rng.choices(["default", "sports", *all_], [9, 7, *[1] * len(all_)])[0]
    if rng.random() < 0.85:
        return name, all_[name]
    lines = [s for p in all_.values() for s in re.split(r"(?<=[.:])\s+", p) if s != SILENCE]
    return "custom", " ".join(rng.sample(lines, rng.randrange(1, 7)))


@dataclass
class Film:
    """A seed's pictures in order, FPS a second."""

    facts: list[Fact]
    moments: dict[str, list[int]] = field(default_factory=dict)  # where something rare shows

    def __post_init__(self) -> None:
        for i, f in enumerate(self.facts[3:], 3):
            win = self.facts[i - 3 : i + 1]
            kinds = [f.state] if f.state != "play" else []
            if a := match.attempt(win):
                kinds.append(a.kind)
            if match.lighting(win):
                kinds.append("light")
            for k in kinds:
                self.moments.setdefault(k, []).append(i)

    def window(self, i: int, pictures: int, step: int) -> list[Fact]:
        """The pictures up to i."""
        return [self.facts[i - step * j] for j in range(pictures - 1, -1, -1)]

    def pick(self, rng: random.Random, lo: int) -> int:
        """A moment: nearly always any, so that what is rare is learnt as rare, but not so rare that it is not learnt."""
        if self.moments and rng.random() < 0.25:
            return max(lo, rng.choice(self.moments[rng.choice(list(self.moments))]))
        return rng.randrange(lo, len(self.facts))


# How often an order is given, by kind; styles are learnt with the plain commentary.
ORDER_WEIGHTS = {"all": 4, "goals": 4, "score": 3, "ball": 3, "team": 3, "q_score": 4, "q_leads": 5, "q_goals": 5, "q_clock": 4, "q_ball": 4}


def make(rng: random.Random, film: Film, i: int, pictures: int, step: int) -> Text:
    """An example on the window that ends with picture i."""
    lo = step * (pictures - 1)
    win = film.window(i, pictures, step)
    profile, system = _system(rng)
    hint = rng.choices(list(match.HINTS), [5, 4, 3, 4])[0]
    limit = match.HINTS[hint]
    order = _order(rng, win) if rng.random() < 0.45 else None
    if order and order.kind == "short":
        limit = min(limit, 5)
    told, said, age = None, "", 99.0
    if rng.random() < 0.85:
        told, said, age = _before(rng, film, i, lo, pictures, step, order, profile)
    n = match.follow(rng, order, win, told, age) if order else match.tell(rng, win, told, age)
    answer = match.word(rng, win, n, match.style(order, rng, profile, n), limit, said) if n else SILENCE
    if answer == said:
        answer = SILENCE
    text = order.text(rng, win[-1].teams) if order else ""
    return Text(system, prompt_text(text, said, age, hint), answer, order.kind if order else "")


def _order(rng: random.Random, win: list[Fact]) -> Order:
    """An order; half of the time one that this window lets through, if it is of a kind that lets little through."""
    kinds = list(words.orders("orders." + match.ORDERS))
    weights = [ORDER_WEIGHTS.get(k, 2) for k in kinds]
    for attempt in range(4):
        o = Order(rng.choices(kinds, weights)[0])
        if o.kind in ("team", "player"):
            now = win[-1]
            o.team = rng.randrange(2)
            if o.kind == "player":
                o.number = now.attempt[1] if now.attempt and rng.random() < 0.7 else rng.randrange(1, 12)
                o.team = now.attempt[0] if now.attempt and rng.random() < 0.7 else o.team
        if attempt == 3 or o.kind not in match.FILTERS or rng.random() < 0.5 or match.follow(rng, o, win, None, 99):
            break
    return o


def _before(
    rng: random.Random, film: Film, i: int, lo: int, pictures: int, step: int, order: Order | None, profile: str
) -> tuple[News | None, str, float]:
    """The last comment before picture i: what it told, its words and its age. It stays through silences, so it may be minutes old."""

    def at(j: int, o: Order | None, n: News | None) -> tuple[News | None, str, float]:
        if n is None:
            return None, "", 99.0
        win = film.window(j, pictures, step)
        text = match.word(rng, win, n, match.style(o, rng, profile, n), rng.choice(list(match.HINTS.values())))
        return n, text, (i - j) / FPS + rng.uniform(-0.1, 0.1)

    filtered = order is not None and order.kind not in match.STYLES and rng.random() < 0.85
    if filtered and order and (order.kind in match.FILTERS or order.kind == "ball"):
        found, j = None, i - rng.randrange(5, 10)
        while j >= lo and i - j < 600:
            n = match.follow(rng, order, film.window(j, pictures, step), None, 99)
            if n is None and found is not None:
                break
            if n is not None:
                if found and (found[1].kind, found[1].key, found[1].team) != (n.kind, n.key, n.team):
                    break
                found = (j, n)
            j -= 4
        return at(found[0], order, found[1]) if found else (None, "", 99.0)
    gap = int(rng.triangular(6, 60, 13)) if rng.random() < 0.92 else rng.randrange(60, 500)
    if order and order.kind == "score" and filtered:
        gap = rng.randrange(10, 420)
    if order and order.kind.startswith("q_") and rng.random() < 0.5:
        filtered = False
    j = i - gap
    if j < lo:
        return None, "", 99.0
    win = film.window(j, pictures, step)
    if filtered and order:
        return at(j, order, match.follow(rng, order, win, None, 99))
    n, text, age = at(j, None, match.tell(rng, win))
    return (n, text, age) if order is None or order.kind in match.STYLES else (News("other"), text, age)


def stranger(rng: random.Random, dark: bool) -> Text:
    """An example on pictures of neither world: said once, then silence. A comment on another picture may have gone before."""
    _, system = _system(rng)
    said, hint = "", rng.choice(list(match.HINTS))
    text = words.say(rng, match.WORDS, DARK if dark else UNKNOWN, "calm", {})
    order = Order(rng.choice(list(words.orders("orders." + match.ORDERS))), rng.randrange(2)).text(rng, ("Red", "Blue")) if rng.random() < 0.3 else ""
    roll = rng.random()
    if roll < 0.45:
        said, answer = text, SILENCE
    else:
        answer = text
        if roll < 0.6:
            said = words.say(rng, match.WORDS, rng.choice(["play", "turn", "mid"]), "calm", {"T": rng.choice(match.TEAMS), "O": "Blue", "w": "left"})
    return Text(system, prompt_text(order, said, rng.uniform(1, 60), hint), answer)
