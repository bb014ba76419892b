"""Makes the requests of a data set by its name."""

from __future__ import annotations

import random

from qanat.bench.online.prompts.files import make_conversations, make_custom, make_sharegpt
from qanat.bench.online.prompts.prompt import DEFAULT_OUTPUT_LEN, Dataset, Made, Prompt
from qanat.bench.online.prompts.random_prompts import drawn_len, make_random, tokens_of
from qanat.bench.online.prompts.traces import make_burst, make_trace
from qanat.bench.online.prompts.vocabulary import Tokenize, Vocabulary

TURN_LEN = 64
"""Tokens that the user says in a turn of a made-up conversation."""


async def make_prompts(
    dataset: Dataset, vocabulary: Vocabulary, tokenize: Tokenize | None, *, takes_ids: bool
) -> Made:
    """The requests.

    Args:
        dataset: what is wanted.
        vocabulary: what random prompts are made of.
        tokenize: counts the texts of files; None where nobody can.
        takes_ids: the API takes token ids.

    Raises:
        ConfigError: a file is missing or not of the data set's form.
    """
    if dataset.name == "sharegpt":
        return await make_sharegpt(dataset, tokenize)
    if dataset.name == "custom":
        return await make_custom(dataset)
    if dataset.name == "multi_turn":
        return make_conversations(dataset) if dataset.path else _random_conversations(dataset, vocabulary)
    if dataset.name == "burstgpt":
        return make_burst(dataset, vocabulary, takes_ids=takes_ids)
    if dataset.name in ("timed_trace", "mooncake"):
        return make_trace(dataset, vocabulary, takes_ids=takes_ids)
    return make_random(dataset, vocabulary, takes_ids=takes_ids)


def _random_conversations(dataset: Dataset, vocabulary: Vocabulary) -> Made:
    """Conversations in which the user says random words."""
    source, lengths = tokens_of(dataset), random.Random(f"lengths {dataset.seed}")
    input_len = TURN_LEN if dataset.input_len is None else dataset.input_len
    output_len = DEFAULT_OUTPUT_LEN if dataset.output_len is None else dataset.output_len
    prompts = []
    for _ in range(dataset.count):
        turns = []
        for _ in range(dataset.num_turns):
            said = vocabulary.draw_text(max(drawn_len(input_len, dataset.range_input, lengths), 1), source)
            turns.append((said, max(drawn_len(output_len, dataset.range_output, lengths), 1)))
        prompts.append(Prompt(None, turns[0][0], None, turns[0][1], turns=tuple(turns[1:])))
    return Made(prompts)
