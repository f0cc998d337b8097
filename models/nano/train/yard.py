"""What a truthful watcher says about a few pictures of the yard, by the world's truth. A window is a list of Facts, oldest first; the last is now."""

import json
from dataclasses import dataclass, replace
from typing import Any

import words
from words import News, Order, Random

NAME = "yard"
COATS = ["red", "blue", "green", "yellow", "white", "black", "orange"]
CARS = ["white", "red", "blue", "black", "silver"]
PLACES_OF = ["gate", "door", "parking", "path", "yard"]
DOINGS = ["coming", "going", "standing", "walking", "leaving_parcel", "taking_parcel"]
DRIVES = ["arriving", "parked", "leaving"]
SPANISH = {"red": "rojo", "blue": "azul", "green": "verde", "yellow": "amarillo", "white": "blanco", "black": "negro", "orange": "naranja", "silver": "plateado"}
# When an event shows plainly: from and to, in seconds after it begins, as long as its person, car or animal is in sight.
SHOWS = {"arrive_gate": (0.3, 4.5), "arrive_parcel": (0.3, 4.5), "arrive_door": (0.3, 4.0), "arrive_car": (1.0, 5), "leave_gate": (-0.8, 3), "leave_parcel": (-0.8, 3),
         "leave_door": (-0.3, 3), "leave_car": (-0.5, 3), "parcel_left": (0.4, 4.5), "parcel_taken": (0.4, 4.5), "car_arrive": (0.4, 7.5), "car_leave": (0.3, 7),
         "dog": (0.3, 6), "cat": (0.3, 6), "rain_start": (0.5, 6), "rain_end": (0.3, 6), "lamp_fails": (0.3, 4.5), "lamp_on": (0.2, 6), "dusk": (1.2, 9), "dawn": (1.2, 9)}  # fmt: skip

MISSED = 7  # s after which nobody is missed any more


@dataclass(slots=True)
class Fact:
    """One picture's truth."""

    t: float
    light: float
    night: bool
    rain: bool
    lamp: str
    people: dict[int, dict[str, Any]]
    cars: dict[int, dict[str, Any]]
    animals: dict[int, dict[str, Any]]
    parcels: list[dict[str, Any]]
    twilight: int  # 1 at dusk, 2 at dawn
    rained: tuple[float, float]  # how long it has rained, 1 being 12 s, and how long it has not since, 1 being 40 s; -9 where it is not so
    events: list[News]  # of the last 10 s and the next second, oldest first; key is who did it


def facts(lines: list[str]) -> tuple[list[Fact], list[list[tuple[float, float, int]]]]:
    """The truth of a film, and what is where in each picture: x, y and the class of POINTS."""
    records = [json.loads(line) for line in lines]
    events = [_event(e) for d in records for e in d.get("events", ())]
    out, points = [], []
    for d in records:
        y, t = d["yard"], d["t"]
        people, cars, animals = ({x["id"]: x for x in y[k]} for k in ("people", "cars", "animals"))
        last = {e.kind: t - e.at for e in events if e.at <= t}
        twilight = 0 if not 0.03 < d["light"] < 0.97 else min(((last[k], i) for i, k in ((1, "dusk"), (2, "dawn")) if k in last), default=(0, -1))[1]
        began, ended = (min(1.0, last[k] / s) if k in last and (k == "rain_start") == d["rain"] else -9.0 for k, s in (("rain_start", 12), ("rain_end", 40)))
        near = [e for e in events if -1 <= t - e.at <= 10]
        out.append(Fact(t, d["light"], d["night"], d["rain"], y["lamp"], people, cars, animals, y["parcels"], twilight, (began, ended), near))
        points.append(_points(y))
    return out, points


def _event(e: dict[str, Any]) -> News:
    kind, place = e["kind"], e.get("place", "")
    if kind in ("arrive", "leave"):
        kind += "_parcel" if e.get("parcel") and place == "gate" else {"gate": "_gate", "door": "_door"}.get(place, "_car")
    return News(kind, key=e.get("id", 0), at=e["t"], slots={k: v for k, v in (("c", e.get("coat")), ("k", e.get("colour"))) if v}, zone=place)


POINTS = (*COATS, *CARS, "parcel", "carried", "dog", "cat")


def _points(y: dict[str, Any]) -> list[tuple[float, float, int]]:
    out = []

    def put(box: list[float], across: float, down: float, what: str) -> None:
        out.append((box[0] + across * (box[2] - box[0]), box[1] + down * (box[3] - box[1]), POINTS.index(what) if what not in CARS else len(COATS) + CARS.index(what)))

    for p in y["people"]:
        out.append(((p["box"][0] + p["box"][2]) / 2, p["box"][1] + 0.42 * (p["box"][3] - p["box"][1]), COATS.index(p["coat"])))
        if p["parcel"]:
            put(p["box"], 0.5, 0.5, "carried")
    for c in y["cars"]:
        for across in (0.2, 0.5, 0.8):
            put(c["box"], across, 0.5, c["colour"])
    for p in y["parcels"]:
        put(p["box"], 0.5, 0.5, "parcel")
    for a in y["animals"]:
        put(a["box"], 0.5, 0.5, a["kind"])
    return out


def news(win: list[Fact]) -> list[News]:
    """The events that show in a window, oldest first."""
    now, first, out = win[-1], win[0], []
    seen = {k for f in win for k in f.people}
    for e in now.events:
        lo, hi = SHOWS[e.kind]
        if not lo <= now.t - e.at <= hi:
            continue
        if e.kind.startswith("arrive") or e.kind.startswith("parcel"):
            still = 4 if e.kind == "arrive_car" else 2  # s for which standing is a part of coming
            shown = e.key in now.people and (e.kind[0] == "p" or now.people[e.key]["doing"] != "standing" or now.t - e.at < still)
        elif e.kind.startswith("leave"):
            shown = e.key in seen and (now.t > e.at or e.key in now.people)
            if e.kind == "leave_car" and now.t < e.at + 0.1:  # standing beside a car: only who came to it gets in
                shown = shown and first.people.get(e.key, {}).get("doing") == "going"
        elif e.kind.startswith("car"):
            shown = now.cars.get(e.key, {}).get("doing") == ("arriving" if e.kind == "car_arrive" else "leaving")
        elif e.kind in ("dog", "cat"):
            shown = e.key in now.animals
        elif e.kind == "lamp_on":
            shown = now.lamp == "on" and (first.lamp != "on" or first.t - e.at < 2.8 or 0.2 < now.light < 0.5)  # it warms up for 3 s
        elif e.kind == "lamp_fails":  # it flickers for 2.5 s
            shown = now.lamp == "broken" and (first.lamp == "on" or first.t - e.at < 2.3)
        else:
            shown = e.kind != "rain_start" or now.rain
        if shown:
            out.append(e)
    return out


def _untold(win: list[Fact], told: News | None) -> list[News]:
    """The events that the last comments have not told, first what goes first: those that show in a window, and that somebody of whom they told has gone
    since. Somebody of whom they told needs no arrival."""
    now, known = win[-1], told.known if told else frozenset()
    named = {key for kind, key in known if kind in PEOPLE + NARRATED}
    out = news(win)
    out += [e for e in now.events if e.kind.startswith("leave") and 0 < now.t - e.at < MISSED and e.key in named and e not in out]
    out = [e for e in out if (e.kind, e.key) not in known and not (e.kind.startswith("arrive") and e.key in named)]
    return sorted(out, key=lambda e: e.at + SHOWS[e.kind][1])


def _pair(events: list[News]) -> News | None:
    """The first event; one of a person takes another person's along, which would be gone before the next comment."""
    n = events[0] if events else None
    if n is None or n.kind not in PEOPLE:
        return n
    return replace(n, also=next((e for e in events[1:] if e.kind in PEOPLE and e.key != n.key), None))


def tell(rng: Random, win: list[Fact], told: News | None = None, age: float = 99.0) -> News | None:
    """The piece of news in a window, told being what the last comment said, age seconds ago; None if there is nothing new."""
    now = win[-1]
    if n := _pair(_untold(win, told)):
        return n
    # What is said must be likelier than silence, or sampling never says it: so it depends on what shows, and on the age of the last comment.
    if told and age < 4:
        return None
    if n := _doing(now):
        return None if told and (told.kind, told.key) == (n.kind, n.key) else n
    return None if now.people or now.animals or told and age < 11 else filler(rng, now)


def _doing(now: Fact) -> News | None:
    """What the newest person in the picture does."""
    for who, p in sorted(now.people.items(), reverse=True):
        doing, place = p["doing"], p["place"]
        if doing == "standing" and place != "parking":  # there it is on its way out of a car, or into it
            kind = {"door": "at_door", "gate": "at_gate"}.get(place, "waits")
        elif doing in ("coming", "going") and place == "path":
            kind = "walks_in" if doing == "coming" else "walks_out"
        elif doing == "walking" or doing in ("coming", "going") and place == "yard":
            kind = "walks"
        else:
            continue
        return News(kind, key=who, at=now.t - 0.5, slots={"c": p["coat"]}, zone=place)
    return None


def filler(rng: Random, now: Fact) -> News:
    """What can be said when nothing happens."""
    kinds, slots = ["empty"], {}
    parked = [c["colour"] for c in now.cars.values() if c["doing"] == "parked"]
    if len(parked) == 1:
        kinds, slots = ["empty", "empty_car"], {"k": parked[0]}
    kinds += ["empty_parcel"] * bool(now.parcels) + ["night_quiet"] * (now.light < 0.2) + ["rain_yes"] * now.rain + ["lamp_is_off"] * (now.lamp == "broken")
    return News(rng.choice(kinds), key="quiet", at=now.t - 0.5, slots=slots)


def word(rng: Random, win: list[Fact], n: News, lang: str, register: str, limit: int, avoid: str = "") -> str:
    """The news in words. With room for it a second sentence follows, which is as true."""
    if n.also:
        return words.both(*(word(rng, win, replace(x, also=None), lang, register, limit // 2, avoid) for x in (n, n.also)), lang)
    now, s = win[-1], {}
    for k, v in n.slots.items():
        s[k] = v if lang == "en" or k not in "ck" else SPANISH[v]
        s |= {{"c": "a", "k": "A"}[k]: "an" if v == "orange" else "a"} if k in "ck" else {}
    if n.kind in ("people_count", "cars_count"):
        texts = {"en": (("person", "people", "no people"), ("car", "cars", "no cars")), "es": (("persona", "personas", "ninguna persona"), ("coche", "coches", "ningún coche"))}
        s["p"] = words.counted(len(now.people), lang, *texts[lang][0]).replace("un persona", "una persona")
        s["q"] = words.counted(len(now.cars), lang, *texts[lang][1])
    text = words.say(rng, f"{NAME}.{lang}", n.kind, register, s, limit, avoid)
    while n.key == "quiet" and text.startswith(("Yes", "Sí", "No,")):  # wordings for answers
        text = words.say(rng, f"{NAME}.{lang}", n.kind, register, s, limit, avoid)
    if limit < 18 or n.at == 0 or n.key == "quiet" or rng.random() < 0.7:
        return text
    more = filler(rng, now)
    return text if more.kind.startswith(("empty", "night")) else text + " " + word(rng, win, more, lang, "calm", 8)


PEOPLE = ("arrive_gate", "arrive_parcel", "arrive_door", "arrive_car", "leave_gate", "leave_parcel", "leave_door", "leave_car", "parcel_left", "parcel_taken")
NARRATED = ("at_door", "at_gate", "waits", "walks_in", "walks_out", "walks")
ANIMALS, RAIN, LIGHT = ("dog", "cat"), ("rain_start", "rain_end"), ("lamp_fails", "lamp_on", "dusk", "dawn")
# Orders that let some news through, with the kinds that pass.
FILTERS: dict[str, tuple[str, ...]] = {
    "people": PEOPLE + NARRATED, "coming": PEOPLE[:4], "going": PEOPLE[4:8], "coat": PEOPLE + NARRATED, "parcels": ("parcel_left", "parcel_taken", "arrive_parcel", "leave_parcel"),
    "cars": ("car_arrive", "car_leave"), "animals": ANIMALS, "door": ("arrive_door", "leave_door", "parcel_left", "parcel_taken", "at_door"),
    "gate": ("arrive_gate", "arrive_parcel", "leave_gate", "leave_parcel", "car_arrive", "car_leave", "at_gate"), "light": LIGHT, "rain": RAIN,
    **{k: (k,) for k in ("parcel_left", "parcel_taken", "car_arrive", "car_leave", *ANIMALS, *RAIN, *LIGHT)},
}  # fmt: skip
WEIGHTS = {"people": 3, "coat": 5, "nodog": 3, "q_gate": 4, "q_people": 4, "q_coat": 4, "q_car": 3, "cannot": 3}
# Rules that are easily taken for each other.
NEAR = tuple(s.split() for s in ("people coming going coat door gate", "parcels parcel_left parcel_taken", "cars car_arrive car_leave", "animals dog cat",
                                 "rain rain_start rain_end", "light lamp_fails lamp_on dusk dawn"))  # fmt: skip
ELSEWHERE = ("parcels", "cars", "gate", "door", "coat", "q_gate", "q_door", "q_cars", "q_car", "q_parcel", "q_coat", "q_animal", "animals")
RULES = tuple(FILTERS)


def order(rng: Random, lang: str, kind: str, win: list[Fact] | None = None, held_out: bool = False, rule: bool = False) -> Order:
    """An order in a person's words, or an alert rule; with a window, its coat is often one that shows there."""
    here = [p["coat"] for p in win[-1].people.values()] if win else []
    coat = rng.choice(here) if here and rng.random() < 0.6 else rng.choice(COATS)
    text = words.rule(rng, NAME, lang, kind, held_out) if rule else words.order(rng, NAME, lang, kind, held_out)
    c = coat if lang == "en" else SPANISH[coat]
    many = c + ("s" if c[-1] in "aeo" else "es") if lang == "es" else c
    for slot, value in (("c", c), ("a", "an" if c == "orange" else "a"), ("s", many)):
        text = text.replace("{" + slot + "}", value)
    return Order(kind, text, who=coat)


def follow(rng: Random, o: Order, win: list[Fact], told: News | None, age: float) -> News | None:
    """The news that an order lets through, or its answer. told is the last comment under the order."""
    if o.kind in ("nodog", "nocat"):
        n = tell(rng, win, told, age)
        return None if n and n.kind == o.kind[2:] else n
    if o.kind.startswith("q_"):
        n = answer(o, win[-1])
        return None if told and (told.kind, told.key) == (n.kind, n.key) else n
    if n := _pair([e for e in _untold(win, told) if _passes(o, e)]):
        return n
    n = _doing(win[-1])
    if n is None or not _passes(o, n) or told and (age < 4 or (told.kind, told.key) == (n.kind, n.key)):
        return None
    return n


def _passes(o: Order, n: News) -> bool:
    return n.kind in FILTERS[o.kind] and (o.kind != "coat" or n.slots.get("c") == o.who)


def answer(o: Order, now: Fact) -> News:
    """The answer to a question."""
    def at(place: str) -> News:
        for who, p in now.people.items():
            if p["place"] == place:
                return News("who_" + place, key=who, slots={"c": p["coat"]})
        return News("nobody_" + place)

    kind = o.kind[2:]
    if kind in ("gate", "door"):
        return at(kind)
    if kind == "people":
        return News("people_count" if now.people else "nobody", key=len(now.people))
    if kind == "cars":
        return News("cars_count" if now.cars else "cars_none", key=len(now.cars))
    if kind == "car":
        colours = sorted(c["colour"] for c in now.cars.values() if c["doing"] == "parked")
        return News("car_colour", key=colours[0], slots={"k": colours[0]}) if len(colours) == 1 else News("cars_count" if now.cars else "cars_none", key=len(now.cars))
    if kind == "coat":
        for p in now.people.values():
            if p["coat"] == o.who:
                return News("coat_where_" + p["place"], key=p["place"], slots={"c": o.who})
        return News("cannot")
    if kind == "animal":
        return next((News("animal_yes_" + a["kind"]) for a in now.animals.values()), News("animal_no"))
    yes, no = {"parcel": ("parcel_yes", "parcel_no"), "lamp": ("lamp_is_on", "lamp_is_off"), "rain": ("rain_yes", "rain_no"), "night": ("night_yes", "day_yes")}[kind]
    return News(yes if {"parcel": bool(now.parcels), "lamp": now.lamp == "on", "rain": now.rain, "night": now.night}[kind] else no)


def holds(rng: Random, o: Order, win: list[Fact]) -> News | None:
    """What fires an alert rule in a window: an event, or somebody in sight if the rule is about that."""
    now = win[-1]
    for who, p in now.people.items():
        if o.kind in ("people", p["place"]) or o.kind == "coat" and p["coat"] == o.who:
            return next((n for n in news(win) if n.key == who), None) or News({"door": "who_door", "gate": "who_gate"}.get(p["place"], "walks"), slots={"c": p["coat"]})
    if o.kind == "animals":
        return next((News("animal_yes_" + a["kind"]) for a in now.animals.values()), None)
    return next((n for n in news(win) if _passes(o, n)), None)


def unclear(o: Order, win: list[Fact]) -> bool:
    """Whether an alert rule is about an event of the last seconds or the next: only its first seconds decide clearly. A car that passes the gate is
    news of the gate or is not, by the rule's words."""
    if o.kind == "gate" and any(n.kind.startswith("car") for n in win[-1].events):
        return True
    if o.kind in ("people", "coat", "door", "gate", "animals"):
        return False  # who is there decides
    age = [win[-1].t - n.at - SHOWS[n.kind][0] for n in win[-1].events if _passes(o, n)]
    return bool(age) and not any(0.1 <= a < FRESH for a in age)


FRESH = 2.5  # s since an event has begun to show


def moments(win: list[Fact]) -> list[str]:
    """What of the rare shows in a window; twice if it has just begun to show."""
    shown = news(win)
    fresh = [n.kind + " now" for n in shown if win[-1].t - n.at < SHOWS[n.kind][0] + FRESH / 2]
    return [n.kind for n in shown] + fresh + ["someone"] * bool(win[-1].people) + ["both"] * (len(win[-1].people) > 1) + ["twilight"] * (0.1 < win[-1].light < 0.9)


def style(rng: Random, profile: str, _: News) -> str:
    """The register that fits the profile."""
    weights = {"sports": (2, 5, 4), "default": (5, 5, 1), "security": (9, 1, 0)}.get(profile, (7, 3, 0))
    return rng.weighted(words.REGISTERS, weights)


# Truth per picture and per text while training, as in match.py. Of each coat and car: 0 is out of sight.
PICTURE_HEADS = {**{f"{c} coat": 6 for c in COATS}, **{f"{c} car": 3 for c in CARS}, "parcels": 3, "dog": 2, "cat": 2, "lamp": 2, "day": 8, "rain": 2, "twilight": 3}
TEXT_HEADS = {**{f"{c} coat does": 7 for c in COATS}, **{f"{c} coat is": 6 for c in COATS}, **{f"{c} car": 3 for c in CARS}, "people": 4, "cars": 3, "parcels": 3, "dog": 2,
              "cat": 2, "lamp": 2, "night": 2, "rain": 2, **{f"{k} shows": 2 for k in SHOWS}}  # fmt: skip
PLACES = ("light", "since rain began", "since rain ended")


def picture_truth(f: Fact) -> tuple[list[int], list[float]]:
    """Classes of PICTURE_HEADS and values of PLACES."""
    places = {p["coat"]: PLACES_OF.index(p["place"]) + 1 for p in f.people.values()}
    cars = {c["colour"]: 1 + (c["doing"] != "parked") for c in f.cars.values()}
    kinds = [a["kind"] for a in f.animals.values()]
    return [*(places.get(c, 0) for c in COATS), *(cars.get(c, 0) for c in CARS), min(2, len(f.parcels)), int("dog" in kinds), int("cat" in kinds),
            int(f.lamp == "on"), min(7, int(f.light * 8)), int(f.rain), f.twilight], [f.light, *f.rained]  # fmt: skip


def text_truth(win: list[Fact]) -> list[int]:
    """Classes of TEXT_HEADS."""
    now = win[-1]
    doing = {p["coat"]: DOINGS.index(p["doing"]) + 1 for p in now.people.values()}
    seen = dict(zip(PICTURE_HEADS, picture_truth(now)[0], strict=True))
    values = seen | {f"{c} coat does": doing.get(c, 0) for c in COATS} | {f"{c} coat is": seen[f"{c} coat"] for c in COATS}
    values |= {"people": min(3, len(now.people)), "cars": min(2, len(now.cars)), "night": int(now.night)}
    values |= {f"{k} shows": 0 for k in SHOWS} | {f"{n.kind} shows": 1 for n in news(win)}
    return [values[k] for k in TEXT_HEADS]
