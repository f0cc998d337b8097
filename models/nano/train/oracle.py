"""A commentator without faults, for the test of package truth: it answers looks, a JSON object a line, by the world's truth in a file of the render command."""

import json
import sys
from pathlib import Path

import examples
import words

STEP, PICTURES = 3, 4


def main(world: str, truth: str, lang: str, profile: str) -> None:
    """Answers until standard input ends."""
    module, rng = examples.WORLDS[world], words.Random(1)
    film = examples.Film(module, module.facts(Path(truth).read_text().splitlines())[0])
    commentary = examples.Commentator(film, PICTURES, STEP, lang, profile)

    def order(asked: dict[str, str]) -> words.Order:
        team = [t.lower().split()[0] for t in film.facts[i].teams].index(asked["team"]) if asked["team"] else None
        return words.Order(asked["kind"], asked["kind"], team, asked["number"], asked["colour"])

    for line in sys.stdin:
        look = json.loads(line)
        i = min(len(film.facts) - 1, max(STEP * (PICTURES - 1), round(look["at"] * examples.FPS)))
        if rules := look["rules"]:
            win, fired = film.window(i, PICTURES, STEP), []
            for number, rule in rules.items():
                if n := module.holds(rng, order(rule), win):
                    fired.append({"rule": int(number), "reason": module.word(rng, win, n, lang, "calm", 8)})
            answer = json.dumps({"fired": fired})
        elif asked := look["order"]:
            c = examples.Commentator(film, PICTURES, STEP, lang, profile, order(asked), at=i)
            answer = c.look(rng, i, 5 if asked["kind"] == "short" else 18)
        else:
            answer = commentary.look(rng, i, next(n for hint, n in examples.HINTS.items() if hint in look["text"]))
        print(answer, flush=True)


main(*sys.argv[1:])
