"""Prompts of random tokens: unique from the first block on unless a shared beginning is asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator

from qanat.bench.online.prompts.prompt import DEFAULT_INPUT_LEN, DEFAULT_OUTPUT_LEN, Dataset, Made, Prompt
from qanat.bench.online.prompts.vocabulary import Vocabulary

PREFIX_REPETITION_LEN = 256


def make_random(dataset: Dataset, vocabulary: Vocabulary, *, takes_ids: bool) -> Made:
    """Random prompts, and those of prefix_repetition.

    Lengths follow from the seed alone; tokens from the seed and the run's id.

    Args:
        dataset: what is wanted.
        vocabulary: what prompts are made of.
        takes_ids: the API takes token ids; the length is exact then whatever they say.
    """
    has_groups = dataset.name == "prefix_repetition"
    prefix_len = dataset.prefix_len
    lengths = list(_lengths(dataset, PREFIX_REPETITION_LEN if has_groups else DEFAULT_INPUT_LEN))
    source = tokens_of(dataset)
    num_prefixes = dataset.num_prefixes if has_groups else 1
    draw = vocabulary.draw_ids if takes_ids else vocabulary.draw_text
    prefixes: list[list[int] | str] = (
        [draw(prefix_len, source) for _ in range(num_prefixes)] if prefix_len else []
    )
    prompts = []
    for number, (input_len, output_len) in enumerate(lengths):
        shared = prefixes[number % num_prefixes] if prefixes else None
        total_len = prefix_len + input_len
        if takes_ids:
            own = vocabulary.draw_ids(input_len, source)
            ids = [*shared, *own] if isinstance(shared, list) else own
            prompts.append(Prompt(ids, "", total_len, output_len))
        elif isinstance(shared, str):
            words = [shared, *source.choices(vocabulary.words, k=input_len)]
            prompts.append(Prompt(None, " ".join(words), total_len, output_len))
        else:
            prompts.append(Prompt(None, vocabulary.draw_text(input_len, source), total_len, output_len))
    if has_groups and dataset.is_shuffled:
        random.Random(f"order {dataset.seed}").shuffle(prompts)
    return Made(prompts, shares_prefixes=bool(prefixes))


def tokens_of(dataset: Dataset, salt: str = "") -> random.Random:
    """The source of a data set's tokens."""
    return random.Random(f"tokens {dataset.seed} {dataset.run_id} {salt}")


def _lengths(dataset: Dataset, default_len: int) -> Iterator[tuple[int, int]]:
    source = random.Random(f"lengths {dataset.seed}")
    input_len = default_len if dataset.input_len is None else dataset.input_len
    output_len = DEFAULT_OUTPUT_LEN if dataset.output_len is None else dataset.output_len
    for _ in range(dataset.count):
        drawn = drawn_len(input_len, dataset.range_input, source)
        yield (
            max(drawn, 0 if dataset.prefix_len else 1),
            max(drawn_len(output_len, dataset.range_output, source), 1),
        )


def drawn_len(length: int, share: float, source: random.Random) -> int:
    """A length between `length` (1 - share) and `length` (1 + share)."""
    return source.randint(round(length * (1 - share)), round(length * (1 + share)))
