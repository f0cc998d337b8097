"""What a truthful commentator says about a few pictures of the match, by the world's truth.

A window is a list of Facts, oldest first; the last is now. Only what shows plainly in the pictures is said: every claim keeps a margin.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import words
from words import News, Order, Random

NAME = "match"
TEAMS = ["Red", "Blue", "Yellow", "White", "Violet", "Sky Blue", "Orange"]
GOALS = ("goal", "goal_score", "goal_lead", "goal_level", "goal_back", "goal_more")
TINTS = ["white", "blue", "red", "violet"]
STATES = ["play", "goal", "crowd", "replay", "kick_off", "free", "goal_kick", "save", "half_time", "full_time"]
OUTCOMES = ["goal", "save", "post", "wide"]
CAMERAS = ["wide", "left", "right", "crowd", "replay_left", "replay_right"]
ZONES = ["own", "mid", "final", "box"]
PLAIN = 0.4  # s after the ball has arrived, from when it shows what became of a shot
TEAMS_ES = dict(zip(TEAMS, ["Rojo", "Azul", "Amarillo", "Blanco", "Violeta", "Celeste", "Naranja"], strict=True))
TINTS_ES = dict(zip(TINTS, ["blanca", "azul", "roja", "violeta"], strict=True))


@dataclass(slots=True)
class Fact:
    """One picture's truth."""

    t: float
    teams: tuple[str, str]
    score: tuple[int, int]
    clock: int
    half: int
    state: str
    camera: str
    team: int | None
    since: float
    way: int
    attempt: tuple[int, int, str, float, float] | None  # team, number, outcome, s since the strike, s since it arrived
    goal: tuple[int, int, float] | None  # team, number, s ago
    shots: tuple[int, int]
    plate: bool
    covered: bool  # by flash or banner
    light: float
    tint: int
    ball: tuple[float, float] | None
    pitch: tuple[float, float]
    flow: int
    still: bool
    signal: bool  # the referee's arm is up

    @property
    def live(self) -> bool:
        """Neither replay nor crowd."""
        return self.camera in ("wide", "left", "right")

    @property
    def zone(self) -> str:
        """Where play is, as the team on the ball sees it."""
        x = self.pitch[0] if self.way >= 0 else 105 - self.pitch[0]
        return "own" if x < 40 else "mid" if x < 64 else "final" if x < 80 else "box"


POINTS = (*TEAMS, "keeper", "referee", "signal")


def facts(lines: list[str]) -> tuple[list[Fact], list[list[tuple[float, float, int]]]]:
    """The truth of a film, and where the shirts and the raised hand are in each picture: x, y and the class of POINTS."""
    records = [json.loads(line) for line in lines]
    out = [_fact(d) for d in records]
    a, b = (TEAMS.index(t) for t in out[0].teams)
    kits = [7] + [a] * 10 + [7] + [b] * 10
    return out, [_points(d["match"], kits) for d in records]


def _points(m: dict[str, Any], kits: list[int]) -> list[tuple[float, float, int]]:
    shirts = [(x, y, k) for (x, y), k in zip(m["torsos"], kits, strict=False)]
    return shirts + [(*m[what], POINTS.index(what)) for what in ("referee", "signal") if m[what]]


def _team(short: str) -> str:
    return "Sky Blue" if short == "Sky" else short


def _fact(d: dict[str, Any]) -> Fact:
    m = d["match"]
    a, g = m.get("attempt"), m.get("goal")
    camera = m["camera"]
    state = {"free_kick": "free", "celebration": "goal"}.get(m["phase"], m["phase"])
    if camera == "crowd" or camera.startswith("replay"):
        state = camera.split("_")[0]
    return Fact(
        t=d["t"], teams=(_team(m["teams"][0]), _team(m["teams"][1])), score=tuple(m["score"]), clock=int(m["clock"]), half=m["half"], state=state, camera=camera,
        team=m.get("possession"), since=m["since"], way=m["direction"], plate=bool(m["plate"]),
        attempt=(a["team"], a["number"], a["outcome"], a["age"], a["contact"]) if a else None,
        goal=(g["team"], g["number"], g["age"]) if g else None, shots=tuple(m["shots"]), covered=m["banner"] or m["flash"] > 0.3,
        light=d["light"], tint=TINTS.index(d["tint"]), ball=tuple(m["ball"]) if m.get("ball") else None, pitch=tuple(m["pitch"]), flow=m["flow"], still=m["still"],
        signal=m["signal"] is not None,
    )  # fmt: skip


def tell(rng: Random, win: list[Fact], told: News | None = None, age: float = 99.0) -> News | None:
    """The piece of news in a window, told being what the last comment said, age seconds ago; None if there is nothing new."""
    now, kind = win[-1], told.kind if told else ""
    if now.state in ("free", "kick_off", "goal_kick") and kind in SCORELINES and age < 4:
        return None
    if now.state in ("free", "kick_off", "goal_kick") and kind in (now.state, "kick_score") and 2.5 < age < 8 and rng.random() < 0.4:
        return scoreline(rng, now)  # a pause is when people ask for it
    if now.state == "goal":
        return _goal(rng, now, told, age)
    if a := attempt(win):
        if not (told and (kind, told.key) == (a.kind, a.key)):
            return a
        if a.kind == "shot" or age < 2:
            return None
    elif now.attempt and now.live and now.attempt[4] < PLAIN and now.state not in ("half_time", "full_time"):
        return None  # not to be judged yet
    if now.state in ("crowd", "half_time", "full_time", "goal_kick"):
        again = kind == now.state
        return None if again else News(now.state, now.team)
    if now.state == "replay":
        if kind.startswith("replay"):
            return None
        after_goal = kind in (*GOALS, "joy") and age < 15
        return News("replay_goal" if after_goal else "replay", told.team if told and after_goal else None)
    if now.state == "kick_off":
        return None if kind.startswith("kick") else News(rng.choice(["kick_off", "kick_off", "kick_score"]))
    if light := lighting(win):
        if kind != light.kind or age > 6:
            return light
    if now.state == "free":
        return None if kind == "free" or now.since < 0.8 else News("free", now.team)
    if now.state == "save":
        return None
    return _play(rng, win, told, age)


def _goal(rng: Random, now: Fact, told: News | None, age: float) -> News | None:
    assert now.goal
    team, number, ago = now.goal
    shown = number if ago > 0.7 else None  # the banner names it
    key = (team, number)  # not the score: films show another one every few seconds
    if told and told.key == key and told.kind in (*GOALS, "joy"):
        return None if age < 1.5 or rng.random() < (0.5 if told.kind != "joy" else 0.9) else News("joy", team, None, key)
    mine, other = now.score[team], now.score[1 - team]
    relation = "lead" if mine == other + 1 else "level" if mine == other else "back" if mine < other else "more"
    return News(rng.choice(["goal", "goal_score", "goal_score", "goal_score", "goal_" + relation]), team, shown, key)


def attempt(win: list[Fact]) -> News | None:
    """A shot on its way, or what became of it, once it shows plainly."""
    now = win[-1]
    if not now.attempt or not now.live or now.state in ("goal", "half_time", "full_time"):
        return None
    team, number, outcome, age, contact = now.attempt
    shown = number if now.plate else None
    key = (team, number, sum(now.shots))
    if contact < 0:
        return News("shot", team, shown, key) if age > 0.2 else None
    if outcome != "goal" and PLAIN <= contact <= 2.6:
        return News(outcome, 1 - team if outcome == "save" else team, shown, key)
    return None


def lighting(win: list[Fact]) -> News | None:
    """A change of the light between the window's first and last picture."""
    first, now = win[0], win[-1]
    if first.camera != now.camera or not now.live or now.covered or first.covered:
        return None
    if now.light < first.light - 0.2:
        return News("dim")
    if now.light > first.light + 0.2:
        return News("bright")
    if now.tint != first.tint:
        return News("tint" if now.tint else "white", key=now.tint)
    return None


def _play(rng: Random, win: list[Fact], told: News | None, age: float) -> News | None:
    now, first, kind = win[-1], win[0], told.kind if told else ""
    if now.team is None or now.state == "play" and now.since < 0.5:
        return None
    moving = [f for f in win if f.state == "play" and f.team is not None]
    new = told is None or told.team is None or kind not in PLAYED
    if told and kind in PLAYED and told.team != now.team or not told and moving and moving[0].team != now.team:
        return News("turn", now.team, zone=now.zone)
    if told and kind in ("free", "kick_off", "kick_score", "goal_kick", "half_time", "save") and age < 12:
        return News("on", now.team, zone=now.zone)
    if first.team is not None and first.team != now.team and first.state == "play":
        return News("turn", now.team, zone=now.zone)
    if told and (age < 1.5 if new else age < 3 or told.zone == now.zone and age < 6):
        return None
    if rng.random() < 0.12:
        return scoreline(rng, now)
    return News(rng.choice(["play", now.zone, now.zone]), now.team, zone=now.zone)


PLAYED = ("play", "own", "mid", "final", "box", "turn", "on", "shot", "ball", "way")


SCORELINES = ("none", "level", "state", "lead", "clock", "clock_zero", "clock_score")


def scoreline(rng: Random, now: Fact, clock: bool = True) -> News:
    """A statement of score or time."""
    a, b = now.score
    kinds = ["none"] if a == b == 0 else ["level", "state"] if a == b else ["lead", "lead", "state"]
    if clock:
        kinds += ["clock_zero"] if now.clock < 60 else ["clock", "clock_score"]
    return News(rng.choice(kinds), None if a == b else int(b > a), key=now.score)


def name(team: str, lang: str) -> str:
    """A team's name in a language."""
    return team if lang == "en" else TEAMS_ES[team]


def slots(f: Fact, n: News, lang: str) -> dict[str, str]:
    """Values for the templates; a slot that the pictures do not show has none."""
    teams, tint, score = [name(t, lang) for t in f.teams], TINTS[f.tint], [words.goals(g, lang) for g in f.score]
    goals = ("goal", "goals", "no goals") if lang == "en" else ("gol", "goles", "ningún gol")
    out = {"st": f"{teams[0]} {score[0]}, {teams[1]} {score[1]}", "hl": words.result(f.score, lang), "m": words.before_noun(f.clock // 60 % 100, lang),
           "c": tint if lang == "en" else TINTS_ES[tint], "0": teams[0], "1": teams[1], "k": words.counted(sum(f.score), lang, *goals)}  # fmt: skip
    if n.team is not None:
        out |= {"T": teams[n.team], "O": teams[1 - n.team]}
        out["w"] = {("en", 1): "right", ("en", -1): "left", ("es", 1): "derecha", ("es", -1): "izquierda"}.get((lang, f.way)) or ""
        if n.kind == "shots_count":
            none = "none" if lang == "en" else "ninguno"
            out |= {k: words.number(f.shots[t], lang) if f.shots[t] else none for k, t in (("k", n.team), ("j", 1 - n.team))}
    if n.number is not None:
        out["n"] = words.number(n.number, lang)
    return {k: v for k, v in out.items() if v}


def word(rng: Random, win: list[Fact], n: News, lang: str, register: str, limit: int, avoid: str = "") -> str:
    """The news in words. With room for it a second sentence follows, which is as true."""
    now, file = win[-1], f"{NAME}.{lang}"
    if n.kind in GOALS and now.goal and now.state == "goal":
        now = replace(now, way=1 if now.pitch[0] > 52 else -1)
    if n.kind == "goal" and limit < 10:
        n = replace(n, kind="goal_score")
    text = words.say(rng, file, n.kind, register, slots(now, n, lang), limit, avoid)
    if n.kind == "goal":  # the score is never left out
        return text + " " + words.fill("{hl}" + rng.choice(".!"), slots(now, n, lang))  # type: ignore[operator]
    if limit < 18 or rng.random() < 0.65:
        return text
    more: News | None = None
    if n.kind in GOALS and now.goal and now.goal[2] > 0.8:
        more = News("joy", n.team)
    elif n.kind in PLAYED and n.kind != "shot":
        more = scoreline(rng, now) if rng.random() < 0.35 else News(now.zone, n.team) if n.kind != now.zone else None
    elif n.kind in ("save", "post", "wide", "free", "crowd", "replay_goal"):
        more = scoreline(rng, now, False)
    return text + " " + words.say(rng, file, more.kind, register, slots(now, more, lang), 8) if more else text


# Orders that let some news through, with the kinds that pass.
FILTERS = {
    "goals": GOALS, "shots": ("shot", "save", "post", "wide", *GOALS), "keepers": ("save",),
    "lights": ("dim", "bright", "tint", "white"), "crowd": ("crowd",), "replays": ("replay", "replay_goal"),
    "restarts": ("free", "goal_kick", "kick_off", "kick_score", "half_time", "full_time"), "danger": ("box",), "team": (), "player": (),
    "dim": ("dim",), "bright": ("bright",), "free": ("free",), "half_time": ("half_time",), "kick_off": ("kick_off", "kick_score"),
}  # fmt: skip
QUESTIONS = {"q_score": "state", "q_leads": "lead", "q_goals": "goals_count", "q_clock": "clock", "q_half": "half", "q_ball": "ball", "q_teams": "teams", "q_way": "way",
             "q_shots": "shots_count"}  # fmt: skip


# Of the orders, how often each is given; 2 is the default. And orders for the other world, which cannot be followed here.
WEIGHTS = {"goals": 4, "score": 3, "ball": 3, "team": 3, "q_score": 4, "q_leads": 5, "q_goals": 5, "q_clock": 4, "q_ball": 4, "cannot": 3}
# Rules that are easily taken for each other.
NEAR = tuple(s.split() for s in ("goals shots keepers", "lights dim bright", "crowd replays", "restarts free half_time kick_off"))
ELSEWHERE = ("goals", "q_score", "q_leads", "q_goals", "q_clock", "q_ball", "q_shots", "shots", "keepers", "replays", "score", "ball", "team")
RULES = tuple(k for k in FILTERS if k not in ("player", "team", "danger"))


def order(rng: Random, lang: str, kind: str, win: list[Fact] | None = None, held_out: bool = False, rule: bool = False) -> Order:
    """An order in a person's words, or an alert rule; with a window, its team and player are often those that play there."""
    o = Order(kind, "", rng.randrange(2), rng.randrange(1, 12))
    if win and kind == "player" and (a := win[-1].attempt) and rng.random() < 0.7:
        o.team, o.number = a[0], a[1]
    teams = win[-1].teams if win else tuple(rng.sample(TEAMS, 2))
    assert o.team is not None and o.number is not None
    t, text = name(teams[o.team], lang), words.rule(rng, NAME, lang, kind, held_out) if rule else words.order(rng, NAME, lang, kind, held_out)
    for slot, value in (("T", t), ("t", t.lower()), ("n", words.number(o.number, lang)), ("N", str(o.number))):
        text = text.replace("{" + slot + "}", value)
    o.text = text
    return o


def follow(rng: Random, o: Order, win: list[Fact], told: News | None, age: float) -> News | None:
    """The news that an order lets through, or its answer. told is the last comment under the order."""
    now, kind = win[-1], told.kind if told else ""
    if o.kind == "score":
        return None if told and kind in ("state", "lead", "level", "none") and age < 55 else scoreline(rng, now, False)
    if o.kind == "ball" or o.kind in QUESTIONS:
        n = answer(rng, o.kind, now)
        if n is None or told and (kind, told.key) == (n.kind, n.key) and (n.kind not in ("ball", "way") or told.team == n.team):
            return None
        return n
    fresh = holds(rng, o, win) if o.kind == "shots" else _passing(rng, o, win)
    if fresh is None or told and fresh.kind == told.kind and fresh.key is not None and fresh.key == told.key:
        return None
    if told and told.kind in GOALS and fresh.kind in GOALS and told.key == fresh.key:
        return None
    if told and fresh.kind == told.kind and fresh.key is None and age < (3 if o.kind == "danger" else 9):
        return None
    if o.kind == "team" and told and age < 3 and fresh.kind in PLAYED:
        return None
    return fresh


def _passing(rng: Random, o: Order, win: list[Fact]) -> News | None:
    now = win[-1]
    found: list[News | None] = [attempt(win), lighting(win)]
    if now.state == "play" and now.team is not None and now.since >= 0.5 and now.live and not now.covered:
        found.append(News(rng.choice([now.zone, "play"]) if now.zone != "box" else "box", now.team, zone=now.zone))
    if now.state != "play" and (now.state != "free" or now.since >= 0.8):
        found.insert(0, tell(rng, win))
    for n in found:
        if n is None:
            continue
        if o.kind == "team" and n.team == o.team and n.kind not in ("crowd", "replay", "replay_goal") and n.team is not None:
            return n
        if o.kind == "player" and n.number == o.number and (1 - n.team if n.kind == "save" and n.team is not None else n.team) == o.team:
            return n
        if n.kind in FILTERS[o.kind]:
            return n
    return None


def answer(rng: Random, kind: str, now: Fact) -> News | None:
    """The answer to a question, and what "ball" follows."""
    if kind in ("q_ball", "ball", "q_way"):
        if now.state == "crowd":
            return News("noball") if kind != "ball" else None
        if now.team is None or not now.live or now.state not in ("play", "free", "save", "goal_kick") or kind == "ball" and now.state == "play" and now.since < 0.5:
            return None if kind == "ball" else tell(rng, [now]) or News("state", key=now.score)
        return News("ball" if kind != "q_way" or now.way == 0 else "way", now.team, key=now.team)
    n = News(QUESTIONS[kind], None, key=(kind, now.score))
    a, b = now.score
    if kind == "q_leads":
        return News("level" if a == b and a else "none" if a == b else "lead", None if a == b else int(b > a), key=now.score)
    if kind == "q_score":
        return scoreline(rng, now, False)
    if kind == "q_goals":
        return replace(n, kind="goals_none" if a + b == 0 else "goals_count")
    if kind == "q_clock":
        return replace(n, kind="clock" if now.clock >= 60 else "clock_zero", key=now.clock // 60)
    if kind == "q_half":
        return replace(n, kind="half_time" if now.state == "half_time" else "full_time" if now.state == "full_time" else "half" if now.half < 2 else "half2", key=now.half)
    if kind == "q_shots":
        return replace(n, team=0, key=now.shots) if now.plate else News("cannot", key=0)
    return n


def holds(rng: Random, o: Order, win: list[Fact]) -> News | None:
    """What fires an alert rule in a window; a shot also while it is not plain what becomes of it."""
    now, a = win[-1], win[-1].attempt
    shot = a and o.kind == "shots" and now.live and now.state not in ("half_time", "full_time") and a[3] > 0.2 and a[4] <= 2.6
    return _passing(rng, o, win) or (News("shot", a[0], a[1] if now.plate else None) if a and shot else None)


def unclear(_: Order, __: list[Fact]) -> bool:
    """Whether a rule is about what has been or is about to come: in the match it shows or it does not."""
    return False


def moments(win: list[Fact]) -> list[str]:
    """What of the rare shows in a window."""
    now = win[-1]
    news = (attempt(win), lighting(win))
    return [now.state] * (now.state != "play") + ["light" if n is news[1] else n.kind for n in news if n]


def style(rng: Random, profile: str, n: News) -> str:
    """The register that fits profile and event."""
    big = n.kind in (*GOALS, "joy", "save", "post", "wide", "shot", "crowd")
    weights = {"sports": (1, 5, 5) if big else (5, 5, 1), "default": (3, 6, 2) if big else (6, 4, 0)}.get(profile, (7, 3, 0) if big else (9, 1, 0))
    return rng.weighted(words.REGISTERS, weights)


# Truth per picture, read from the resampler's rows while training, and per text, read from the language model's last state before the answer: classes.
PICTURE_HEADS = {"state": 10, "camera": 6, "team": 3, "s0": 10, "s1": 10, "m10": 10, "m1": 10, "kit0": 7, "kit1": 7, "dim": 2, "tint": 4, "zone": 4, "attempt": 6, "number": 12,
                 "signal": 2}
TEXT_HEADS = {"state": 10, "team": 3, "kit": 8, "s0": 10, "s1": 10, "lead": 3, "m10": 10, "m1": 10, "light": 5, "attempt": 6, "turned": 2, "zone": 4, "still": 2, "number": 12,
              "signal": 2, "moved": 3, "moved along": 3}
PLACES = ("ball x", "ball y", "pitch x", "pitch y", "flow")


def picture_truth(f: Fact) -> tuple[list[int], list[float]]:
    """Classes of PICTURE_HEADS and values of PLACES; -1 and -9 where there is none."""
    played = f.live and f.team is not None and f.state in ("play", "free", "goal_kick", "save") or f.state == "replay" and f.team is not None
    flight = 0 if not f.attempt or not f.live else 1 if f.attempt[4] < 0 else 2 + OUTCOMES.index(f.attempt[2]) if f.attempt[4] < 2.6 else 0
    minute = f.clock // 60 % 100
    number = f.goal[1] if f.state == "goal" and f.goal and f.goal[2] > 0.7 else f.attempt[1] if f.attempt and f.plate else 0  # in the graphics
    kits = [TEAMS.index(t) for t in f.teams]
    classes = [STATES.index(f.state), CAMERAS.index(f.camera), f.team + 1 if played and f.team is not None else 0 if f.state == "crowd" else -1,
               *f.score, minute // 10, minute % 10, *kits, int(f.light < 0.9), f.tint, ZONES.index(f.zone) if played else -1, flight, number, int(f.signal)]  # fmt: skip
    seen = f.ball is not None and not f.covered and 0 < f.ball[0] < 1 and 0 < f.ball[1] < 1
    places = [*(f.ball if seen and f.ball else (-9, -9)), *((f.pitch[0] / 105, f.pitch[1] / 68) if played else (-9, -9)), f.flow if f.state == "play" else -9]
    return classes, places


def text_truth(win: list[Fact]) -> list[int]:
    """Classes of TEXT_HEADS."""
    now, first = win[-1], win[0]
    c = dict(zip(PICTURE_HEADS, picture_truth(now)[0], strict=True))
    light = lighting(win)
    a, b = now.score
    turned = -1 if first.team is None or now.team is None or now.state != "play" else int(first.team != now.team)
    kit = -1 if c["team"] < 0 else 7 if c["team"] == 0 else TEAMS.index(now.teams[c["team"] - 1])
    live = first.live and now.live and first.camera == now.camera and not now.covered and not first.covered
    along, across = now.pitch[0] - first.pitch[0], now.pitch[1] - first.pitch[1]
    far = along * along + across * across
    moved = {"moved": (far > 0.25) + (far > 9), "moved along": 0 if abs(along) < 0.5 else 1 + (along > 0)} if live else {"moved": -1, "moved along": -1}
    values = c | moved | {"kit": kit, "lead": 0 if a == b else 1 if a > b else 2, "turned": turned, "still": int(now.still),
                  "light": ["dim", "bright", "tint", "white"].index(light.kind) + 1 if light else 0}  # fmt: skip
    return [values[k] for k in TEXT_HEADS]
