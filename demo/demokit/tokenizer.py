"""The demo vocabulary: bytes, frequent words of the wordings, Chinese characters, Qwen3.5's special tokens.

A piece of the split regex is one token if it is in the vocabulary whole (`ignore_merges`), otherwise bytes; the only
merges join the bytes of one Chinese character. So a name or a made-up word is always a row of letters, whatever
stands before it, and copying it is one simple rule.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from . import words

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
    "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>",
    "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>",
)  # fmt: skip
"""All 33 added tokens of Qwen3.5 in the order of their ids."""
VISIBLE_TOKENS = frozenset(
    ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
)
"""Added tokens that decoding keeps even when special tokens are skipped."""


def byte_letters() -> dict[int, str]:
    """The printable letter that byte-level BPE uses for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in kept}
    for place, byte in enumerate(byte for byte in range(256) if byte not in letters):
        letters[byte] = chr(256 + place)
    return letters


def _spelled(text: str) -> str:
    letters = byte_letters()
    return "".join(letters[byte] for byte in text.encode())


def _may_be_token(piece: str) -> bool:
    """Whether a piece may be one token: plain ASCII, longer than a byte, no digit, no content word."""
    if len(piece) < 2 or not piece.isascii() or any(c.isdigit() for c in piece):
        return False
    return not words.is_content(re.sub(r"[^A-Za-z]", "", piece))


def count_pieces(texts: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """How often each ASCII piece and each other character comes in `texts`; special tokens are taken out first."""
    control = re.compile("|".join(map(re.escape, CONTROL_TOKENS)))
    splitter = pre_tokenizers.Split(Regex(SPLIT), "isolated")
    pieces: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for text in texts:
        for part in control.split(text):
            if part:
                for piece, _ in splitter.pre_tokenize_str(part):
                    pieces[piece] += 1
                    characters.update(c for c in piece if not c.isascii())
    return pieces, characters


def build(texts: Iterable[str], size: int, min_count: int = 25) -> Tokenizer:
    """A tokenizer of at most `size` entries (special tokens included) from rendered training texts."""
    pieces, characters = count_pieces(texts)
    vocabulary = {letter: place for place, letter in enumerate(byte_letters()[b] for b in range(256))}
    merges: list[tuple[str, str]] = []
    for character, count in sorted(characters.items(), key=lambda pair: (-pair[1], pair[0])):
        spelled = _spelled(character)
        if count < 4 * min_count or len(spelled) != 3:
            continue
        for left, right in ((spelled[0], spelled[1]), (spelled[:2], spelled[2])):
            if left + right not in vocabulary:
                vocabulary[left + right] = len(vocabulary)
                merges.append((left, right))
    room = size - len(vocabulary) - len(CONTROL_TOKENS)
    allowed = [
        (piece, count) for piece, count in pieces.items() if count >= min_count and _may_be_token(piece)
    ]
    for piece, _ in sorted(allowed, key=lambda pair: (-pair[1], pair[0]))[:room]:
        vocabulary.setdefault(_spelled(piece), len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_tokens(
        [AddedToken(t, special=t not in VISIBLE_TOKENS, normalized=False) for t in CONTROL_TOKENS]
    )
    return tokenizer


def tokenizer_config(tokenizer: Tokenizer) -> dict[str, object]:
    """The content of tokenizer_config.json."""
    added = {
        str(tokenizer.token_to_id(token)): {
            "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": token not in VISIBLE_TOKENS,
        }
        for token in CONTROL_TOKENS
    }  # fmt: skip
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json into `folder`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    text = json.dumps(tokenizer_config(tokenizer), indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
