"""Trains nano's tokenizer, in the file format of the published one: its pre-tokenizer and special tokens, own merges."""

import json
import sys
from pathlib import Path

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

import examples
import match
import words
import yard

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = (
    "<unk> <|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> <|quad_end|> "
    "<|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> "
    "<|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think> <image> </image> <ref> </ref> <box> </box> <quad> </quad> "
    "<point> </point> <slice> </slice> <image_id> </image_id> <unit> </unit> <answer> </answer> <focus> </focus> <line> </line> <perception> "
    "</perception> <source_image> </source_image> <image_save_to> </image_save_to> <|audio_start|> <|audio|> <|audio_end|> <|spk_bos|> <|spk|> "
    "<|spk_eos|> <|tts_bos|> <|tts_eos|> <|listen|> <|speak|> <|interrupt|> <|vad_start|> <|vad_end|> <|emotion_start|> <|emotion_end|> "
    "<|speed_start|> <|speed_end|> <|pitch_start|> <|pitch_end|> <|turn_bos|> <|turn_eos|> <|chunk_eos|> <|chunk_bos|> <|chunk_tts_bos|> "
    "<|chunk_tts_eos|> <|tts_pad|>"
).split() + [f"<|timbre_{i}|>" for i in range(7, 32)]
PLAIN = set(SPECIAL[SPECIAL.index("<tool_call>") : SPECIAL.index("</think>") + 1])


def _slots(rng: words.Random, lang: str) -> dict[str, str]:
    score = (rng.randrange(10), rng.randrange(10))
    teams = [match.name(t, lang) for t in rng.sample(match.TEAMS, 2)]
    coat, car = (c if lang == "en" else yard.SPANISH[c] for c in (rng.choice(yard.COATS), rng.choice(yard.CARS)))
    tint = rng.choice(match.TINTS)
    return {"T": teams[0], "O": teams[1], "0": teams[0], "1": teams[1], "n": words.number(rng.randrange(1, 12), lang), "hl": words.result(score, lang),
            "w": rng.choice(["left", "right"] if lang == "en" else ["izquierda", "derecha"]), "j": words.number(rng.randrange(9), lang),
            "st": f"{teams[0]} {words.goals(score[0], lang)}, {teams[1]} {words.goals(score[1], lang)}", "m": words.number(rng.randrange(100), lang),
            "k": car if rng.random() < 0.5 else words.number(rng.randrange(9), lang), "c": tint if lang == "en" else match.TINTS_ES[tint],
            "a": "a", "A": "a", "p": "two people", "q": "two cars"} | ({"c": coat} if rng.random() < 0.7 else {})  # fmt: skip


def corpus(rng: words.Random) -> list[str]:
    """Texts in about the shares in which they are fed: prompts, orders, rules, comments."""
    out = [p for p in examples.profiles().values() for _ in range(60)]
    for lang in words.LANGUAGES:
        out += [line for line in examples.ANSWER_IN[lang] for _ in range(100)]
        for world in examples.WORLDS:
            for _ in range(26000 if lang == "en" else 20000):
                kind, by = rng.choice(list(words.sayings(f"{world}.{lang}").items()))
                text = words.fill(rng.choice(rng.choice(list(by.values()))), _slots(rng, lang)) or kind
                out += [text, f' "{text}']
            for kind in words.kinds(f"{world}.{lang}"):
                for _ in range(150):
                    order = examples.WORLDS[world].order(rng, lang, kind)
                    out.append(examples.prompt_text(order.text, [(rng.uniform(0, 100), words.SILENCE)], rng.choice(list(words.HINTS))))
            for kind in examples.WORLDS[world].RULES:
                rules = {i: examples.WORLDS[world].order(rng, lang, kind, rule=True).text for i in range(1, 9)}
                out += [examples.rules_text(rules), '{"fired":[{"rule":3,"reason":"', '"},{"rule":12,"reason":"', '"}]}', '{"fired":[]}'] * 4
    return out


def main(vocabulary: int, out: Path) -> None:
    """Writes tokenizer.json with that many entries, special ones included."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), min_frequency=2, show_progress=False
    )
    tok.train_from_iterator(corpus(words.Random(0)), trainer)
    d, n = json.loads(tok.to_str()), tok.get_vocab_size()
    d["added_tokens"] = [
        {"id": n + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": c not in PLAIN}
        for i, c in enumerate(SPECIAL)
    ]
    d["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    out.write_text(json.dumps(d, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
