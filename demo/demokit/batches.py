"""Token batches of similar length from items."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import rendering
from .item import Item
from .mixture import training_items

POOL_SIZE = 1500
IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """Right-padded ids [B, T]; labels [B, T] are the ids themselves where the model shall write, else IGNORED."""

    items: list[Item]
    ids: Tensor
    labels: Tensor


def encode(tokenizer: Tokenizer, items: Sequence[Item]) -> list[tuple[Item, list[int], int]]:
    """(item, prompt and completion ids, number of prompt ids) for each item."""
    prompts = tokenizer.encode_batch([rendering.prompt_of(item) for item in items], add_special_tokens=False)
    completions = tokenizer.encode_batch(
        [rendering.completion_of(item) for item in items], add_special_tokens=False
    )
    return [(item, p.ids + c.ids, len(p.ids)) for item, p, c in zip(items, prompts, completions, strict=True)]


def _collate(encoded: list[tuple[Item, list[int], int]]) -> Batch:
    time = max(len(ids) for _, ids, _ in encoded)
    ids = torch.zeros(len(encoded), time, dtype=torch.long)
    labels = torch.full((len(encoded), time), IGNORED)
    for row, (_, tokens, num_prompt) in enumerate(encoded):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, num_prompt : len(tokens)] = torch.tensor(tokens[num_prompt:])
    return Batch([item for item, _, _ in encoded], ids, labels)


def make_batches(tokenizer: Tokenizer, items: Sequence[Item], num_tokens: int) -> list[Batch]:
    """Batches of at most `num_tokens` ids with padding (one item at least), short items first."""
    groups: list[list[tuple[Item, list[int], int]]] = [[]]
    for entry in sorted(encode(tokenizer, items), key=lambda entry: len(entry[1])):
        if groups[-1] and (len(groups[-1]) + 1) * len(entry[1]) > num_tokens:
            groups.append([])
        groups[-1].append(entry)
    return [_collate(group) for group in groups if group]


def training_pool(tokenizer: Tokenizer, seed: int, pool: int, num_tokens: int) -> list[Batch]:
    """The batches of one pool of training items in random order, fixed by seed and pool number."""
    batches = make_batches(tokenizer, training_items(seed, pool, POOL_SIZE), num_tokens)
    Random(f"order-{seed}-{pool}").shuffle(batches)
    return batches
