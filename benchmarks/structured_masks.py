"""What following a form costs per token: a mask over the vocabulary, and laying it over the scores.

    python benchmarks/structured_masks.py TOKENIZER_FOLDER [--repeat 7]

TOKENIZER_FOLDER holds the tokenizer.json of a model. A document along a nested schema is followed token by token, as
the tokenizer cuts it; each place gets a mask. A figure per place is the best of the repeats; shown are their mean and
the largest. The library is the one that is used unless another is asked for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer

from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.structured.guidance import GuidanceBackend, GuidanceForm
from qanat.structured.vocabulary import Vocabulary
from qanat.worker.row_form import FormBuffer

ITEM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "kind": {"enum": ["small", "medium", "large"]},
        "price": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
    },
    "required": ["name", "kind", "price", "tags"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": ITEM}, "is_whole": {"type": "boolean"}},
    "required": ["items", "is_whole"],
    "additionalProperties": False,
}
DOCUMENT = json.dumps(
    {
        "items": [
            {"name": "a chair of oak", "kind": "large", "price": 129.5, "tags": ["wood", "room"]},
            {"name": "paper, white", "kind": "small", "price": 4, "tags": []},
        ],
        "is_whole": True,
    }
)
US = 1e6


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """The tokens with their bytes; those whose spelling is no text of their own stay empty."""
    added = {token_id: token.content for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    alphabet = _bytes_of_letters()
    tokens = []
    for token_id in range(tokenizer.get_vocab_size()):
        spelling = tokenizer.id_to_token(token_id) or ""
        if token_id in added:
            tokens.append(added[token_id].encode())
        else:
            tokens.append(bytes(alphabet[letter] for letter in spelling if letter in alphabet))
    ends = [token_id for token_id, text in added.items() if text in ("<|im_end|>", "<|endoftext|>")]
    return Vocabulary(tokens, sorted(added), ends)


def _bytes_of_letters() -> dict[str, int]:
    """Byte-level tokenizers write a byte that is no visible character of Latin-1 as one from 256 on, in order."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def best_s(action: Callable[[], object], repeat: int) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    """Prints a line per figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = Tokenizer.from_file(str(options.folder / "tokenizer.json"))
    vocabulary = vocabulary_of(tokenizer)
    setup_s = best_s(lambda: GuidanceBackend(vocabulary), 3)
    backend = GuidanceBackend(vocabulary)
    grammar = backend.grammar(StructuredOutputsParams(json=SCHEMA))
    compile_s = best_s(lambda: backend.compile(grammar).matcher(), options.repeat)
    masks = mask_times_s(backend.compile(grammar), tokenizer.encode(DOCUMENT).ids, vocabulary, options.repeat)
    buffer, logits = FormBuffer(vocabulary.size), torch.zeros(vocabulary.size)
    apply_s = best_s(lambda: buffer.mask(logits), 20 * options.repeat)
    sys.stdout.write(
        f"{vocabulary.size} tokens, {len(masks)} places\n"
        f"set up   {setup_s * US:8.0f} us\n"
        f"compile  {compile_s * US:8.0f} us\n"
        f"mask     {statistics.fmean(masks) * US:8.0f} us on average, {max(masks) * US:.0f} us at most\n"
        f"apply    {apply_s * US:8.0f} us\n"
    )
    return 0


def mask_times_s(form: GuidanceForm, ids: list[int], vocabulary: Vocabulary, repeat: int) -> list[float]:
    """Seconds of the mask before each token of a document, the best of the repeats for each."""
    buffer = FormBuffer(vocabulary.size)
    best = [float("inf")] * len(ids)
    for _ in range(repeat):
        matcher = form.matcher()
        for place, token_id in enumerate(ids):
            start = time.perf_counter()
            matcher.fill_mask(buffer.words)
            best[place] = min(best[place], time.perf_counter() - start)
            matcher.consume(token_id)
    return best


if __name__ == "__main__":
    sys.exit(main())
