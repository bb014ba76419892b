"""One request before it is written for an API, and how a data set asks for text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DATASETS = (
    *(
        "random",
        "sharegpt",
        "custom",
        "prefix_repetition",
        "multi_turn",
        "burstgpt",
        "timed_trace",
        "mooncake",
    ),
)
DEFAULT_INPUT_LEN, DEFAULT_OUTPUT_LEN = 1024, 128
CUSTOM_OUTPUT_LEN = 256


@dataclass(frozen=True)
class Prompt:
    """One request.

    Attributes:
        token_ids: the prompt as ids; None where it is text.
        text: the prompt as text; empty where it is ids.
        input_len: tokens that were meant; None if nobody counted.
        output_len: tokens to generate.
        at_s: when a trace sends it; None without a trace.
        turns: what the user says after each answer, for a conversation.
    """

    token_ids: list[int] | None
    text: str
    input_len: int | None
    output_len: int
    at_s: float | None = None
    turns: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Dataset:
    """Which requests are wanted.

    Attributes:
        name: one of `DATASETS`.
        path: file of the data sets that have one.
        count: how many requests.
        input_len: tokens of a random prompt, its prefix not counted; of a turn.
        output_len: tokens to generate; None takes the data set's own.
        prefix_len: tokens that all random prompts share; with prefix_repetition, as many as share one.
        num_prefixes: different beginnings of prefix_repetition.
        range_input: shares by which random input lengths may differ from the middle.
        range_output: the same for output.
        num_turns: of a random conversation.
        seed: other seeds give other requests.
        run_id: mixed into the draws of tokens: no prompt of another run begins alike.
        is_shuffled: files are read in another order.
        is_oversampled: a file with too few requests is used again.
        labels: names of the fields of a trace.
        trace_unit_s: seconds of one unit of a trace's time stamps.
        trace_block_len: tokens that one hash id of a trace stands for.
    """

    name: str = "random"
    path: str | None = None
    count: int = 1000
    input_len: int | None = None
    output_len: int | None = None
    prefix_len: int = 0
    num_prefixes: int = 10
    range_input: float = 0.0
    range_output: float = 0.0
    num_turns: int = 3
    seed: int = 0
    run_id: str = ""
    is_shuffled: bool = True
    is_oversampled: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    trace_unit_s: float = 1.0
    trace_block_len: int = 16


@dataclass(frozen=True)
class Made:
    """The requests, and what must be said of them.

    Attributes:
        prompts: in the order of sending.
        notes: sentences.
        shares_prefixes: prompts begin alike on purpose.
    """

    prompts: Sequence[Prompt]
    notes: tuple[str, ...] = ()
    shares_prefixes: bool = False
