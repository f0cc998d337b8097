"""Draws boards over photos: pictures and a list of what is on them, for TestDrawnBoards.

usage: boards.py DEST FONTS PHOTOS      needs Pillow
FONTS and PHOTOS are folders that photos.py fetched. The draws are the same every time. `make sight-test` runs it.
"""
import glob
import json
import os
import random
import sys

from PIL import Image, ImageDraw, ImageFont

FONTS = """Lato-Regular Lato-Bold Lato-Black OpenSans-Regular OpenSans-Bold LiberationSans-Regular LiberationSans-Bold LiberationMono-Regular
LiberationSansNarrow-Bold Roboto-Regular Roboto-Bold BebasNeue-Regular leaguespartan-bold DSEG7Classic-Bold""".split()
PHOTOS = "aero1 baboon board building butterfly fruits home lena messi5 sudoku".split()
TEAMS = "ARS CHE LIV MUN BAR RMA BVB FCB PSG OLM AJA POR".split()
CAPTIONS = ["BREAKING NEWS", "Live from Madrid", "HALF TIME", "Weather tonight", "Camera 3", "Parking lot", "PRESS CONFERENCE", "Gate 12 closed"]


def text(r, kind):
    two = r.sample(TEAMS, 2)
    return {
        "score": "%d-%d" % (r.randrange(6), r.randrange(6)),
        "spaced": "%d - %d" % (r.randrange(6), r.randrange(6)),
        "clock": "%02d:%02d" % (r.randrange(90), r.randrange(60)),
        "team": "%s %d" % (two[0], r.randrange(10)),
        "date": "%04d-%02d-%02d" % (2020 + r.randrange(10), 1 + r.randrange(12), 1 + r.randrange(28)),
        "caption": r.choice(CAPTIONS),
    }[kind]


def draw(r, img, words, font, style):
    """Draws words at a random place; returns the picture and the board's place in shares of it."""
    x0, y0, x1, y1 = font.getbbox(words)
    w, h, pad = x1 - x0, y1 - y0, max(4, font.size // 3)
    x, y = r.randint(pad, img.width - w - pad), r.randint(pad, img.height - h - pad)
    fill = r.choice([(10, 10, 20), (20, 40, 110), (240, 240, 240)])
    layer = Image.new("RGBA", img.size)
    d = ImageDraw.Draw(layer)
    if style != "outline":
        d.rectangle((x - pad, y - pad, x + w + pad, y + h + pad), fill=(*fill, 255 if style == "box" else 170))
    light = style != "outline" and fill[0] > 200
    d.text((x - x0, y - y0), words, font=font, fill=(15, 15, 15) if light else (250, 250, 250),
           stroke_width=max(1, font.size // 14) if style == "outline" else 0, stroke_fill=(0, 0, 0))
    box = [(x - pad) / img.width, (y - pad) / img.height, (x + w + pad) / img.width, (y + h + pad) / img.height]
    return Image.alpha_composite(img.convert("RGBA"), layer).convert("RGB"), box


def main(dest, fonts, photos):
    os.makedirs(dest, exist_ok=True)
    find = {os.path.splitext(os.path.basename(p))[0].lower(): p for p in glob.glob(fonts + "/**/*.[to]tf", recursive=True)}
    files = {os.path.splitext(os.path.basename(p))[0].lower(): p for p in glob.glob(photos + "/**/*.*", recursive=True)
             if p.lower().endswith((".png", ".jpg"))}
    backs = [files[k] for k in PHOTOS if k in files]
    names = [f for f in FONTS if f.lower() in find]
    print("%d fonts, %d photos" % (len(names), len(backs)))
    r, out = random.Random(7), []

    def one(size, height, style, kinds, quality, sides=(0,)):
        img = Image.open(r.choice(backs)).convert("RGB").resize((height * 16 // 9, height), Image.BICUBIC)
        kind, name = r.choice(kinds.split()), r.choice(names)
        if name.startswith("DSEG"):
            kind = "clock"
        words = text(r, kind)
        if name.startswith("Bebas"):  # has no small letters
            words = words.upper()
        img, box = draw(r, img, words, ImageFont.truetype(find[name.lower()], size), style)
        for side in sides:
            small = img.resize((side, side * height // img.width), Image.BOX) if side else img
            file = "%03d.jpg" % len(out)
            small.save(os.path.join(dest, file), quality=quality)
            out.append({"file": file, "text": words, "kind": kind, "side": side, "font": name, "size": size, "style": style, "box": box})

    for _ in range(240):
        one(r.randint(14, 40), 540, r.choice("box glass outline".split()), "score spaced clock team date caption", r.randint(40, 80))
    for n in range(24):  # in the sizes of media.long_side
        one(18 + n * 22 // 23, 720, "box", "score clock team caption", 80, (448, 640))
    json.dump(out, open(os.path.join(dest, "boards.json"), "w"), indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
