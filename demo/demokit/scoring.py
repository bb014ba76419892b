"""Teacher-forced accuracy: an item counts if every token to write is the most likely one."""

from collections import defaultdict
from collections.abc import Iterable

import torch

from .batches import IGNORED, Batch
from .model import DemoModel


@torch.no_grad()
def exact(model: DemoModel, batch: Batch) -> list[bool]:
    """For each item of the batch, whether greedy decoding would write exactly its thought and answer."""
    hidden, _ = model.hidden_states(batch.ids)
    guessed = model.logits(hidden[:, :-1]).argmax(-1)
    wanted = batch.labels[:, 1:]
    return ((guessed == wanted) | (wanted == IGNORED)).all(1).tolist()


def score(model: DemoModel, batches: Iterable[Batch]) -> dict[str, float]:
    """Percent of exact items for each task, thinking on and off apart."""
    right: defaultdict[str, list[bool]] = defaultdict(list)
    for batch in batches:
        for item, is_right in zip(batch.items, exact(model, batch), strict=True):
            right[f"{item.task}{'' if item.is_thinking else '-off'}"].append(is_right)
    return {name: round(100 * sum(flags) / len(flags), 1) for name, flags in sorted(right.items())}


@torch.no_grad()
def draft_agreement(model: DemoModel, batches: Iterable[Batch], num_passes: int = 3) -> list[float]:
    """Of each draft in turn, percent of tokens to write where it is what the model itself then writes.

    Those before it count as right: later ones are of use only then.
    """
    agreed, total = [0] * num_passes, [0] * num_passes
    for batch in batches:
        hidden, _ = model.hidden_states(batch.ids)
        own = model.logits(hidden).argmax(-1)
        for index, (draft, _) in enumerate(model.draft_passes(batch.ids, hidden, num_passes)):
            is_written = batch.labels[:, 2 + index :] != IGNORED
            drafted = model.logits(draft[:, :-1][is_written]).argmax(-1)
            agreed[index] += int((own[:, 1 + index : -1][is_written] == drafted).sum())
            total[index] += drafted.numel()
    return [round(100 * right / asked, 1) for right, asked in zip(agreed, total, strict=True)]
