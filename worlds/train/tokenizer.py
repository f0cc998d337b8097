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

import feed

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
    tok.train_from_iterator(feed.corpus(), trainer)
    d, n = json.loads(tok.to_str()), tok.get_vocab_size()
    d["added_tokens"] = [
        {"id": n + i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": c not in PLAIN}
        for i, c in enumerate(SPECIAL)
    ]
    d["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    out.write_text(json.dumps(d, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
