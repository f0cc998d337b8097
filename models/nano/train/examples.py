"""Examples for training: windows of the worlds' truth, each with a prompt as the engine writes it and a truthful answer."""

import json
import re
from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import match
import words
import yard
from words import HINTS, LANGUAGES, REGISTERS, SILENCE, STYLES, News, Order, Random

PROFILES = Path(__file__).parents[3] / "configs" / "profiles"
FPS = 5
PAIR = 10  # words that tell of two people
WORLDS: dict[str, ModuleType] = {"match": match, "yard": yard}
KINDS = list(dict.fromkeys(k for w in WORLDS for k in words.kinds(f"{w}.en")))  # of orders and rules
ANSWER_IN = {"en": ["Answer in English."],
             "es": ['Answer in the language that has the BCP 47 tag "es", whatever the language of this text.', "Answer in Spanish.", "Responde en español."]}  # fmt: skip


@lru_cache
def profiles() -> dict[str, str]:
    """The built-in profiles' prompts by name."""
    out = {}
    for path in sorted(PROFILES.glob("*.yaml")):
        body = path.read_text().split("prompt: |\n", 1)[1]
        out[path.stem] = "\n".join(line[2:] for line in body.splitlines()).strip()
    return out


def prompt_text(order: str, said: list[tuple[float, str]], hint: str) -> str:
    """The text after the pictures, as promptText of agent/prompt.go writes it; said are the last comments with their ages, oldest first."""
    out = "\n".join(f'{age:.0f} seconds ago you said: "{comment}".' for age, comment in said)
    if said:
        out += " Do not say it again; tell only what is new since then.\n"
    if hint:
        out += hint + "\n"
    if order:
        out += f"Focus: {order}\n"
    return out + "Comment on the newest picture. If nothing new happened, answer only with " + SILENCE


def rules_text(rules: dict[int, str]) -> str:
    """The text of a look for alerts, as rulesText of agent/prompt.go writes it."""
    lines = "".join(f"{n}. {rule}\n" for n, rule in rules.items())
    return f'Rules:\n{lines}Which rules hold in these pictures? Answer only with JSON: {{"fired":[{{"rule":{next(iter(rules))},"reason":"..."}}]}}'


@dataclass
class Text:
    """One prompt and its answer about a window. asked has, of its order or of each of its rules, the index of the kind, and whether the rule holds; -1 where
    that is not known. at is where in the ids of its tail their lines end."""

    system: str
    text: str
    answer: str
    asked: list[tuple[int, int]] = field(default_factory=list)
    at: list[int] = field(default_factory=list)


class Prompts:
    """Token ids of prompts, as inference/minicpmo writes them."""

    def __init__(self, path: str, queries: int) -> None:
        from tokenizers import (
            Tokenizer,  # the rest of this file needs the standard library only
        )

        self.tok = Tokenizer.from_file(path)
        self.queries, pieces = queries, self.tok.get_vocab()
        self.unk, self.start, self.end, self.image, self.image_end, self.think, self.think_end, self.speech, self.pad = (
            pieces[t]
            for t in "<unk> <|im_start|> <|im_end|> <image> </image> <think> </think> <|tts_bos|> <|endoftext|>".split()
        )
        self.cached = lru_cache(4096)(self.encode)
        self.json = self.encode('{"fired":[]}')

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""
        return self.tok.encode(text, add_special_tokens=False).ids

    def head(self, system: str, pictures: int, speech: bool) -> list[int]:
        """The beginning that all texts about some pictures share: system part and pictures, by the chat template, or, with speech, by the streaming one."""
        line = self.cached("\n")
        ids = [self.start, *self.cached("system\n" + system), self.end, *line, self.start, *self.cached("user\n")]
        for _ in range(pictures):
            ids += [self.image, *[self.unk] * self.queries, self.image_end]
            ids += line if not speech else []
        return ids

    def tail(self, t: Text, speech: bool) -> list[int]:
        """The rest of a prompt, up to where the answer begins."""
        line, lines = self.cached("\n"), self.cached("\n\n")
        text = self.tok.encode(t.text, add_special_tokens=False)
        ends = [j for j, (a, b) in enumerate(text.offsets) if "\n" in t.text[a:b]]
        t.at = ends[len(ends) - len(t.asked) :]
        ids = [*text.ids, self.end, *line, self.start, *self.cached("assistant\n"), self.think, *lines, self.think_end, *lines]
        return ids + [self.speech] if speech else ids

    def ids(self, t: Text, pictures: int) -> list[int]:
        """A whole prompt by the chat template."""
        return self.head(t.system, pictures, False) + self.tail(t, False)

    def weights(self, answer: list[int]) -> list[int]:
        """How much each token of an answer counts: those decide that begin it, or that say whether a rule has fired."""
        fires = len(self.json) - 1
        if answer[:fires] == self.json[:fires]:
            return [6 if j == fires else 1 for j in range(len(answer))]
        return [2] + [1] * (len(answer) - 1)


@dataclass
class Setting:
    """Language, profile and system part of a prompt."""

    lang: str
    profile: str
    system: str


def setting(rng: Random) -> Setting:
    """A setting; now and then a profile that no file has, since people write their own."""
    lang, all_ = rng.weighted(LANGUAGES, [57, 43]), profiles()  # English more often
    name = rng.weighted(["default", "sports", "security", *all_], [9, 6, 5, *[1] * len(all_)])
    text = all_[name]
    if rng.random() < 0.12:
        lines = [s for p in all_.values() for s in re.split(r"(?<=[.:])\s+", p) if s != SILENCE]
        name, text = "custom", " ".join(rng.sample(lines, rng.randrange(1, 7)))
    return Setting(lang, name, text + "\n\n" + rng.choice(ANSWER_IN[lang]))


@dataclass
class Film:
    """A seed's pictures in order, FPS a second."""

    world: ModuleType
    facts: list[Any]
    moments: dict[str, list[int]] = field(default_factory=dict)  # where something rare shows

    def __post_init__(self) -> None:
        for i in range(9, len(self.facts)):
            for k in self.world.moments(self.window(i, 4, 3)):
                self.moments.setdefault(k, []).append(i)

    def window(self, i: int, pictures: int, step: int) -> list[Any]:
        """The pictures up to i."""
        return [self.facts[i - step * j] for j in range(pictures - 1, -1, -1)]

    def pick(self, rng: Random, lo: int) -> int:
        """A moment: mostly any, so that what is rare is learnt as rare, but not so rare that it is not learnt."""
        if self.moments and rng.random() < (0.25 if self.world is match else 0.4):
            return max(lo, rng.choice(self.moments[rng.choice(list(self.moments))]))
        return rng.randrange(lo, len(self.facts))


@dataclass
class Commentator:
    """What holds for a row of looks: world, language, profile, order; and the last comment."""

    film: Film
    pictures: int
    step: int
    lang: str
    profile: str
    order: Order | None = None
    told: News | None = None
    said: str = ""
    recent: deque[list[tuple[str, Any]]] = field(default_factory=lambda: deque(maxlen=3))  # what the last comments told
    at: float = 0.0  # picture of the last comment
    past: list[tuple[float, str]] = field(default_factory=list)  # all comments, with the pictures

    def look(self, rng: Random, i: int, limit: int) -> str:
        """The answer to a look at picture i."""
        win, world, o = self.film.window(i, self.pictures, self.step), self.film.world, self.order
        n = self.news(rng, win, (i - self.at) / FPS)
        if n is None:
            return SILENCE
        if limit < PAIR:
            n = replace(n, also=None)
        register = o.kind if o and o.kind in REGISTERS else world.style(rng, self.profile, n)
        text = world.word(rng, win, n, self.lang, register, limit, self.said)
        if text == self.said:
            return SILENCE
        self.recent.append([(x.kind, x.key) for x in (n, n.also) if x])
        self.told, self.said, self.at = replace(n, known=frozenset(k for kinds in self.recent for k in kinds)), text, i
        self.past.append((i, text))
        return text

    def news(self, rng: Random, win: list[Any], age: float) -> News | None:
        """What is worth saying of a window, age seconds after the last comment."""
        o, world = self.order, self.film.world
        if o is None or o.kind in STYLES:
            return world.tell(rng, win, self.told, age)
        if o.kind == "quiet" or o.kind == "cannot" and self.told and self.told.kind == "cannot":
            return None
        return News("cannot") if o.kind == "cannot" else world.follow(rng, o, win, self.told, age)

    def run(self, rng: Random, start: int, end: int) -> None:
        """Comments on the pictures from start until shortly before end, at the engine's pace."""
        i = start
        while i <= end - 4:
            text = self.look(rng, i, min(rng.choice(list(HINTS.values())), 5 if self.order and self.order.kind == "short" else 99))
            i += rng.randrange(2, 7) if text == SILENCE else int(FPS * (0.5 + 0.33 * len(text.split())) + rng.uniform(0, 4)) + 1


def make(rng: Random, s: Setting, film: Film, i: int, pictures: int, step: int) -> Text:
    """An example on the window that ends with picture i, after a commentary that led there."""
    lo, lang, win = step * (pictures - 1), s.lang, film.window(i, pictures, step)
    if rng.random() < (0.3 if film.world.moments(win) else 0.15):
        return _alerts(rng, s, film.world, win)
    hint = rng.weighted(list(HINTS), [5, 4, 3, 4])
    order = _order(rng, film.world, win, lang) if rng.random() < 0.5 else None
    limit = min(HINTS[hint], 5) if order and order.kind == "short" else HINTS[hint]
    c = Commentator(film, pictures, step, lang, s.profile, order, at=i)
    if rng.random() < (0.75 if order else 0.9):
        back = rng.randrange(4, 130) if rng.random() < 0.8 else rng.randrange(60, 500)
        fresh = order is not None and rng.random() < 0.3  # the order has just come
        c.order = None if fresh else order
        start = max(lo, i - back)
        if rng.random() < 0.4 and start > lo:  # something was said before
            c.order, kept = None, c.order
            c.at = start
            c.look(rng, rng.randrange(lo, start), 18)
            c.order, c.at = kept, start - rng.randrange(4, 300)
            c.past = [(c.at, text) for _, text in c.past]
            if kept and kept.kind.startswith(("q_", "score")):
                c.told = News("other") if c.told else None
        c.run(rng, start, i)
        if fresh and order and order.kind.startswith(("q_", "score")):
            c.told = News("other") if c.told else None
        c.order = order
    said = [(max(0.5, (i - at) / FPS + rng.uniform(-0.1, 0.1)), text) for at, text in c.past[-rng.weighted([1, 2, 3, 4, 6], [3, 2, 3, 1, 2]) :]]
    asked = [(KINDS.index(order.kind), _here(rng, film.world, order, win))] if order else []
    return Text(s.system, prompt_text(order.text if order else "", said, hint), c.look(rng, i, limit), asked)


def _here(rng: Random, world: ModuleType, o: Order, win: list[Any]) -> int:
    """Whether a window has what an order is about; -1 where that is not known."""
    return -1 if o.kind not in world.RULES or world.unclear(o, win) else int(world.holds(rng, o, win) is not None)


def _order(rng: Random, world: ModuleType, win: list[Any], lang: str) -> Order:
    """An order; half of the time one that this window lets through, if it is of a kind that lets little through."""
    kinds = words.kinds(f"{world.NAME}.{lang}")
    weights = [world.WEIGHTS.get(k, 2) for k in kinds]
    if rng.random() < 0.05:  # what only the other world has
        other = next(w for w in WORLDS.values() if w is not world)
        return Order("cannot", other.order(rng, lang, rng.choice(other.ELSEWHERE)).text)
    if world is yard and rng.random() < 0.03:  # the yard has no wordings of its own for it
        return Order("boil", match.order(rng, lang, "boil").text)
    for attempt in range(4):
        o: Order = world.order(rng, lang, rng.weighted(kinds, weights), win)
        if attempt == 3 or o.kind not in world.FILTERS or rng.random() < 0.5 or world.follow(rng, o, win, None, 99):
            break
    return o


def _alerts(rng: Random, s: Setting, world: ModuleType, win: list[Any]) -> Text:
    """A look for alert rules, with their numbers, of which some may hold. Many are near to one that holds: what tells them apart must be learnt."""
    wanted = rng.choice([1, 1, 2, 3, 3, 4, 6, 8])
    rules: list[Order] = []
    alone = rng.random() < 0.4  # the near ones, without the one that holds
    while len(rules) < wanted + alone:
        near = next(kinds for kinds in world.NEAR if rules[0].kind in kinds) if rules and rng.random() < (0.9 if alone else 0.4) else world.RULES
        o = world.order(rng, s.lang, rng.choice(near), win, rule=True)
        for _ in range(12 if not rules and rng.random() < 0.6 else 0):  # most rules hold seldom
            if world.holds(rng, o, win):
                break
            o = world.order(rng, s.lang, rng.choice(world.RULES), win, rule=True)
        if all(o.text != r.text for r in rules) and not world.unclear(o, win):
            rules.append(o)
    rules = rules[alone:]
    rng.shuffle(rules)
    numbers = sorted(rng.sample(range(1, max(wanted, rng.choice([wanted, 9, 16])) + 1), wanted))
    if rng.random() < 0.2:  # a rule that never holds: about the other world, or about what neither has
        other = next(w for w in WORLDS.values() if w is not world)
        elsewhere = [k for k in other.ELSEWHERE if k in other.RULES]
        never = world.order(rng, s.lang, "cannot", rule=True) if rng.random() < 0.5 else other.order(rng, s.lang, rng.choice(elsewhere), rule=True)
        never.kind = ""
        rules[rng.randrange(len(rules))] = never
    fired, asked = [], []
    for k, o in zip(numbers, rules, strict=True):
        n = world.holds(rng, o, win) if o.kind else None
        asked.append((KINDS.index(o.kind) if o.kind else -1, int(n is not None)))
        if n:
            fired.append({"rule": k, "reason": world.word(rng, win, n, s.lang, "calm", 8)})
    answer = json.dumps({"fired": fired}, ensure_ascii=False, separators=(",", ":"))
    return Text(s.system, rules_text({k: o.text for k, o in zip(numbers, rules, strict=True)}), answer, asked)


def stranger(rng: Random, s: Setting, dark: bool) -> Text:
    """An example on pictures of neither world: said once, then silence. A comment on another picture may have gone before."""
    lang, world = s.lang, rng.choice(list(WORLDS.values()))
    said, hint = "", rng.choice(list(HINTS))
    if rng.random() < 0.08:
        o = world.order(rng, lang, rng.choice(world.RULES), rule=True)
        return Text(s.system, rules_text({rng.randrange(1, 17): o.text}), '{"fired":[]}')
    text = words.say(rng, f"match.{lang}", "dark" if dark else "unknown", "calm", {})
    order = world.order(rng, lang, rng.choice(words.kinds(f"{world.NAME}.{lang}"))).text if rng.random() < 0.3 else ""
    roll = rng.random()
    if roll < 0.45:
        said, answer = text, SILENCE
    else:
        answer = text
        if roll < 0.6:
            said = words.say(rng, f"match.{lang}", rng.choice(["play", "turn", "mid"]), "calm", {"T": match.name(rng.choice(match.TEAMS), lang), "O": "Blue", "w": "left"})
    return Text(s.system, prompt_text(order, [(rng.uniform(1, 60), said)] if said else [], hint), answer)
