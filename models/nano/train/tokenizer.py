"""Trains nano's tokenizer, in the file format of the published one: its pre-tokenizer and special tokens, own merges."""

import json
import random
import sys
from pathlib import Path

import examples
import match
import words
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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


def corpus(rng: random.Random) -> list[str]:
    """Texts in about the shares in which they are fed: prompts, orders, comments. Letters alone are there for words that nobody trained."""
    out = []
    for prompt in examples.profiles().values():
        out += [prompt] * 60
    for _ in range(60000):
        teams = tuple(rng.sample(match.TEAMS, 2))
        kind, by = rng.choice(list(words.sayings(match.WORDS).items()))
        score = (rng.randrange(10), rng.randrange(10))
        slots = {"T": teams[0], "O": teams[1], "0": teams[0], "1": teams[1], "n": words.number(rng.randrange(1, 12)), "w": rng.choice(["left", "right"]),
                 "hl": words.result(score), "st": f"{teams[0]} {words.goals(score[0])}, {teams[1]} {words.goals(score[1])}",
                 "m": words.number(rng.randrange(100)), "k": words.counted(rng.randrange(19), "goal"), "j": "none", "c": rng.choice(match.TINTS)}  # fmt: skip
        text = words.fill(rng.choice(rng.choice(list(by.values()))), slots) or kind
        out += [text, f' "{text}']
    for kind in words.orders("orders." + match.ORDERS):
        for _ in range(300):
            order = match.Order(kind, rng.randrange(2), rng.randrange(1, 12)).text(rng, tuple(rng.sample(match.TEAMS, 2)))
            out.append(examples.prompt_text(order, "", rng.uniform(0, 100), rng.choice(list(match.HINTS))))
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
    tok.train_from_iterator(corpus(random.Random(0)), trainer)
    d, n = json.loads(tok.to_str()), tok.get_vocab_size()
    d["added_tokens"] = [
        {"id": n + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": c not in PLAIN}
        for i, c in enumerate(SPECIAL)
    ]
    d["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    out.write_text(json.dumps(d, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
