"""Judges answers on held-out seeds against the truth, while the model is still on the GPU. touchline-bench truth is the full measurement."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import lru_cache

import examples
import match
import torch
import words
from match import Fact, News, Order

CLAIM = {"T": "|".join(match.TEAMS), "O": "|".join(match.TEAMS), "w": "left|right", "c": "|".join(match.TINTS)}
GOALS = match.FILTERS["goals"]


@lru_cache
def patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Every wording as an expression with its slots, longest first."""
    out = {}
    for kind, by in words.sayings(match.WORDS).items():
        for t in {t for ts in by.values() for t in ts}:
            used: set[str] = set()
            expression = ""
            for i, part in enumerate(re.split(r"\{(\w+)\}", t)):
                if i % 2 == 0:
                    expression += re.escape(part).replace("minutes", "minutes?")
                elif part in used:
                    expression += f"(?P=s{part})"
                else:
                    used.add(part)
                    expression += f"(?P<s{part}>{CLAIM.get(part, '[A-Za-z ,-]+?')})"
            out[(kind, t)] = re.compile(expression, re.IGNORECASE)
    return [(k[0], e) for k, e in sorted(out.items(), key=lambda x: -len(x[0][1]))]


@lru_cache(100000)
def parse(text: str) -> tuple[tuple[str, dict[str, str]], ...] | None:
    """The claims of a comment: kind and slots of each sentence; None if a part is nobody's wording."""
    if not text:
        return ()
    ends = [m.end() for m in re.finditer(r"[.!?](?= |$)", text)]
    for end in reversed(ends):
        for kind, e in patterns():
            if m := e.fullmatch(text[:end]):
                rest = parse(text[end:].strip())
                if rest is not None:
                    return ((kind, {k[1:]: v for k, v in m.groupdict().items()}), *rest)
    return None


def holds(kind: str, s: dict[str, str], film: list[Fact], i: int) -> bool:
    """Whether a claim is true of picture i, within four pictures before and one after it."""
    near, now = film[max(0, i - 4) : i + 2], film[i]
    names = [t.lower() for t in now.teams]
    team = names.index(s["T"].lower()) if s.get("T", "").lower() in names else None
    if "T" in s and team is None or "O" in s and s["O"].lower() not in names:
        return False
    for f in near:
        n = News("lead" if kind == "lead" else kind, team)
        want = {k: v.lower() for k, v in match.slots(f, n).items() if k in ("st", "hl", "m", "k", "j", "c")}
        if all(k not in s or s[k].lower() == want.get(k) for k in ("st", "hl", "m", "k", "j")) and _state(kind, team, f, s):
            break
    else:
        return False
    if "n" in s:
        people = {words.number(p[1]) for f in near for p in (f.attempt, f.goal) if p}
        return s["n"].lower() in people
    if kind in ("dim", "bright", "tint", "white"):
        far = film[max(0, i - 12)]
        return {"dim": now.light < 0.95, "bright": now.light > far.light, "tint": s.get("c", "").lower() == match.TINTS[now.tint], "white": now.tint == 0}[kind] or now.tint > 0 and kind == "tint" and "c" not in s  # fmt: skip
    return True


def _state(kind: str, team: int | None, f: Fact, s: dict[str, str]) -> bool:
    a, b = f.score
    way = {"left": -1, "right": 1}.get(s.get("w", "").lower())
    if kind in GOALS or kind == "joy":
        mine = team if team is not None else (f.goal[0] if f.goal else 0)
        gap = f.score[mine] - f.score[1 - mine]
        fits = {"goal_lead": gap == 1, "goal_level": gap == 0, "goal_back": gap < 0, "goal_more": gap > 1}.get(kind, True)
        return bool(f.goal and f.goal[2] < 4 and f.state == "goal" and team in (None, f.goal[0]) and fits)
    if kind in ("shot", "save", "post", "wide"):
        shooter = 1 - team if kind == "save" and team is not None else team
        return bool(f.attempt and shooter in (None, f.attempt[0]) and (kind == "shot" or f.attempt[2] == kind and f.attempt[4] > -0.1))
    if kind in ("crowd", "half_time", "full_time", "goal_kick"):
        return f.state == kind and (kind != "goal_kick" or team in (None, f.team))
    if kind.startswith("replay"):
        return f.state == "replay"
    if kind.startswith("kick"):
        return f.state == "kick_off"
    if kind == "free":
        return f.state == "free" and team in (None, f.team)
    if kind in ("lead", "q_leads"):
        return team is None or (a > b if team == 0 else b > a)
    if kind in ("level", "none", "goals_none"):
        return a == b and (kind == "level" or a == 0)
    if kind in ("half", "half2"):
        return (f.half < 2) == (kind == "half")
    if kind == "clock_zero":
        return f.clock < 60
    if kind in match.PLAYED and kind != "shot":
        x = f.pitch[0] if f.way >= 0 else 105 - f.pitch[0]
        lo, hi = {"own": (-9, 46), "mid": (34, 70), "final": (50, 90), "box": (70, 120)}.get(kind, (-99, 999))
        return f.team is not None and team in (None, f.team) and f.state in ("play", "free", "save", "goal_kick", "replay") and lo <= x <= hi and way in (None, f.way)
    if kind in ("unknown", "dark"):
        return False
    if kind == "noball":
        return f.state == "crowd"
    return True


def run(model: torch.nn.Module, c: object, p: examples.Prompts, t: object, log: Callable[..., None]) -> None:
    """Commentary at the engine's defaults, the questions, the orders and strange pictures; prints tables."""
    import negatives
    import train

    device = train.DEVICE
    t.load()
    model.eval()
    rng = random.Random(7)
    embedded: list[torch.Tensor] = []
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        for a in range(0, len(t.pixels), 200):
            embedded.append(model.look(train.prepare(train.to_rgb(t.pixels[a : a + 200]).round(), c))[1])
    seen = torch.cat(embedded)

    @torch.no_grad()
    def generate(asked: list[tuple[torch.Tensor, examples.Text]], warm: bool, most: int = 40) -> list[str]:
        """Answers to prompts about [n, queries, hidden]: greedy, or at temperature 0.7 and top-p 0.8."""
        out = []
        for at in range(0, len(asked), 256):
            part = asked[at : at + 256]
            ids = [p.ids(x, len(e), True) for e, x in part]
            lengths = torch.tensor([len(x) for x in ids], device=device)
            X = torch.full((len(part), int(lengths.max()) + most), p.pad, device=device)
            for r, x in enumerate(ids):
                X[r, : len(x)] = torch.tensor(x, device=device)
            e, rows, over, got = torch.cat([e for e, _ in part]), torch.arange(len(part), device=device), torch.zeros(len(part), dtype=torch.bool, device=device), []
            for j in range(most):
                n = int(lengths.max()) + j
                with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
                    h = model.llm(model.embed(X[:, :n], e, p.unk))
                    logits = model.llm.lm_head(h[rows, lengths + j - 1]).float()
                logits[:, p.unk] = -1e9
                token = logits.argmax(-1)
                if warm:
                    v, ix = (logits / 0.7).topk(100, -1)
                    q = v.softmax(-1)
                    q = q * (q.cumsum(-1) - q < 0.8)
                    token = ix.gather(1, torch.multinomial(q, 1))[:, 0]
                token = torch.where(over, p.end, token)
                got.append(token)
                over |= token == p.end
                X[rows, lengths + j] = token
                if bool(over.all()):
                    break
            for r in torch.stack(got, 1).tolist():
                out.append(p.tok.decode(r[: r.index(p.end)] if p.end in r else r, skip_special_tokens=True).strip())
        return out

    def pictures(film: int, i: int, n: int = 4) -> torch.Tensor:
        return seen[film * t.long + i - n + 1 : film * t.long + i + 1]

    system, films = examples.profiles()["default"], [f.facts for f in t.films]
    for warm in (True,):
        state = [{"i": 5, "said": "", "at": 0, "out": []} for _ in films]
        while live := [(k, s) for k, s in enumerate(state) if s["i"] < t.long - 2]:
            asked = []
            for k, s in live:
                hint = list(match.HINTS)[1 if s["said"] and len(s["said"]) < 40 else 0]
                if films[k][s["i"]].camera != films[k][s["at"]].camera:
                    hint = list(match.HINTS)[2]
                asked.append((pictures(k, s["i"]), examples.Text(system, examples.prompt_text("", s["said"], (s["i"] - s["at"]) / 5, hint), "")))
            for (_, s), text in zip(live, generate(asked, warm), strict=True):
                s["out"].append((s["i"], text))
                if text == match.SILENCE:
                    s["i"] += 3
                else:
                    s["said"], s["at"] = text, s["i"]
                    s["i"] += max(5, round(5 * (0.3 * len(text.split()) + 0.5)))
        report([s["out"] for s in state], films, "temperature 0.7" if warm else "greedy", log)
    for k, line in ((k, x) for k in range(2) for x in state[k]["out"][:24]):
        f = films[k][line[0]]
        log(f"   {line[0] / 5:6.1f} s {f.state:9} {f.teams[f.team] if f.team is not None else '-':8} {f.score} | {line[1]}")
    right: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    wrong: dict[str, list[str]] = defaultdict(list)
    for held_out in (False, True):
        asked, facts = [], []
        for kind in words.orders("orders." + match.ORDERS):
            for _ in range(120):
                film = rng.randrange(len(films))
                i = t.films[film].pick(rng, 5) if rng.random() < 0.5 else rng.randrange(5, t.long - 2)
                order = Order(kind, rng.randrange(2), rng.randrange(1, 12))
                text = order.text(rng, films[film][i].teams, held_out)
                asked.append((pictures(film, i), examples.Text(system, examples.prompt_text(text, "", 0, rng.choice(list(match.HINTS)[:3])), "")))
                facts.append((order, film, i, text))
        for (order, film, i, text), answer in zip(facts, generate(asked, True), strict=True):
            good = follows(order, answer, films[film], i)
            key = f"{order.kind}{' held out' if held_out else ''}"
            right[key][0] += good
            right[key][1] += 1
            if not good and len(wrong[key]) < 3:
                wrong[key].append(f"{text} -> {answer[:60]} [{films[film][i].state} {films[film][i].score}]")
    for held_out in ("", " held out"):
        log("orders" + held_out, {k: round(right[k + held_out][0] / right[k + held_out][1], 3) for k in words.orders("orders." + match.ORDERS)})
    for k, examples_ in wrong.items():
        log("   ", k, examples_)
    bank = negatives.bank(300 if device == "cuda" else 10, 99, device).float()
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        e = torch.cat([model.look(train.prepare(bank[a : a + 50], c))[1] for a in range(0, len(bank), 50)])
    hint = list(match.HINTS)[1]
    said = generate([(x[None].expand(4, -1, -1), examples.Text(system, examples.prompt_text("", "", 0, hint), "")) for x in e], True)
    log("strange pictures", Counter("silent" if s == match.SILENCE else "says so" if (q := parse(s)) and q[0][0] in ("unknown", "dark") else s for s in said).most_common(6))


def follows(o: Order, text: str, film: list[Fact], i: int) -> bool:
    """Whether an answer, without a comment before it, does what the order says, truthfully."""
    claims, now = parse(text), film[i]
    if text == match.SILENCE:
        due = [match.follow(random.Random(1), o, film[j - 3 : j + 1], None, 99) for j in (i - 1, i)]
        return not all(due) or o.kind == "team"
    if not claims or not all(holds(k, s, film, i) for k, s in claims if k not in ("cannot",)):
        return False
    kinds = {_plain(k) for k, _ in claims}
    if o.kind in ("quiet", "lights") or o.kind in match.FILTERS and o.kind not in ("team", "player"):
        return kinds & {_plain(k) for k in match.FILTERS.get(o.kind, ())} != set()
    if o.kind == "cannot":
        return kinds == {"cannot"}
    if o.kind in ("team", "player"):
        return all(now.teams[o.team or 0].lower() == s.get("O" if k == "save" and o.kind == "player" else "T", now.teams[o.team or 0]).lower() for k, s in claims)
    if o.kind in match.STYLES:
        return "cannot" not in kinds
    want = {_plain(n.kind) for r in range(8) for j in (i - 2, i, i + 1) if (n := match.follow(random.Random(r), o, film[j - 3 : j + 1], None, 99))}
    return bool(kinds & want)


def _plain(kind: str) -> str:
    """One name for kinds that share wordings."""
    kind = "ball" if kind in match.PLAYED and kind != "shot" or kind == "way" else kind
    kind = "state" if kind in ("lead", "level", "none", "state", "goals_none") else kind
    return "replay" if kind.startswith("replay") else "goal" if kind in GOALS else kind


def report(outs: list[list[tuple[int, str]]], films: list[list[Fact]], name: str, log: Callable[..., None]) -> None:
    """Prints what a commentary got right."""
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    looks = silent = wrong = repeats = strange = goals = called = scored = 0
    bad = []
    for out, film in zip(outs, films, strict=True):
        last = ""
        for i, text in out:
            looks += 1
            if text == match.SILENCE:
                silent += 1
                continue
            repeats += text == last
            last = text
            claims = parse(text)
            if claims is None:
                strange += 1
                bad.append(f"? {text}")
            ok = claims is not None
            for k, s in claims or ():
                true = holds(k, s, film, i)
                kinds[k][0] += true
                kinds[k][1] += 1
                ok = ok and true
                if not true:
                    bad.append(f"{text} [{film[i].state} {film[i].teams[film[i].team or 0]} {film[i].zone} {film[i].score}]")
            wrong += not ok
        for j, f in enumerate(film):
            if f.goal and f.goal[2] < 0.2 and 5 < j < len(film) - 20:
                goals += 1
                after = [c for i, text in out if j <= i <= j + 19 for c in parse(text) or () if c[0] in GOALS and holds(*c, film, i)]
                called += bool(after)
                scored += any("st" in s or "hl" in s for _, s in after)
    minutes = sum(map(len, films)) / 5 / 60
    said = looks - silent
    log(f"{name}: {minutes:.0f} min, {looks / minutes:.1f} looks and {said / minutes:.1f} comments a minute, {silent / looks:.1%} silent, {wrong / max(said, 1):.2%} of comments wrong, "
        f"{repeats} repeats, {strange} outside the grammar, goals {called}/{goals}, with the score {scored}")  # fmt: skip
    log("   by kind", {k: f"{a}/{b}" for k, (a, b) in sorted(kinds.items(), key=lambda x: x[1][0] - x[1][1])})
    for b in random.Random(1).sample(bad, min(12, len(bad))):
        log("    wrong:", b)
