"""The requests of a benchmark: random token ids, prompts with shared beginnings, or those of a file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qanat.core.errors import ConfigError

DATASETS = ("random", "prefix_repetition", "sharegpt", "custom")
RANDOM_INPUT_LEN, RANDOM_OUTPUT_LEN = 1024, 128
CUSTOM_OUTPUT_LEN = 256
MAX_RANDOM_ID = 10_000
"""Random ids lie below it, as vLLM draws them for its latency benchmark."""
MIN_CHAT_TOKENS, MAX_CHAT_PROMPT, MAX_CHAT_TOKENS = 4, 1024, 2048
"""Conversations that are shorter, or whose prompt or whole is longer, are left out, as vLLM does."""

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class BenchRequest:
    """One request.

    Attributes:
        prompt_token_ids: its prompt.
        output_len: tokens to generate.
    """

    prompt_token_ids: list[int]
    output_len: int


@dataclass(frozen=True)
class Dataset:
    """Which requests are wanted.

    Attributes:
        name: one of `DATASETS`.
        path: file of the data sets that have one.
        num_prompts: how many requests.
        input_len: tokens of a random prompt, its prefix not counted.
        output_len: tokens to generate; None takes the data set's own.
        prefix_len: tokens that all random prompts share.
        range_ratio: random lengths lie between len (1 - ratio) and len (1 + ratio).
        num_prefixes: different beginnings of prefix_repetition.
        is_oversampled: a file with too few requests is used again.
        seed: other seeds give other requests.
    """

    name: str = "random"
    path: str | None = None
    num_prompts: int = 1000
    input_len: int | None = None
    output_len: int | None = None
    prefix_len: int = 0
    range_ratio: float = 0.0
    num_prefixes: int = 10
    is_oversampled: bool = True
    seed: int = 0


def make_requests(dataset: Dataset, num_ids: int, encode: Encode) -> list[BenchRequest]:
    """The requests, the same for the same data set and vocabulary.

    Args:
        dataset: what is wanted.
        num_ids: random ids lie below it.
        encode: text to token ids, for data sets of text.

    Raises:
        ConfigError: the file is missing or not of the data set's form.
    """
    if dataset.name in ("random", "prefix_repetition"):
        return list(_random_requests(dataset, min(num_ids, MAX_RANDOM_ID)))
    if dataset.path is None:
        raise ConfigError(
            f"--dataset-name {dataset.name} needs its file: --dataset-path FILE.", param="--dataset-path"
        )
    read = _read_sharegpt if dataset.name == "sharegpt" else _read_custom
    found = read(dataset, encode)
    if not found:
        raise ConfigError(
            f"--dataset-path {dataset.path} holds no request that can be used.", param="--dataset-path"
        )
    random.Random(dataset.seed).shuffle(found)
    count = dataset.num_prompts if dataset.is_oversampled else min(dataset.num_prompts, len(found))
    return [found[index % len(found)] for index in range(count)]


def random_ids(count: int, num_ids: int, source: random.Random) -> list[int]:
    """So many ids below `num_ids`."""
    return source.choices(range(num_ids), k=count)


def _random_requests(dataset: Dataset, num_ids: int) -> Iterator[BenchRequest]:
    source = random.Random(dataset.seed)
    num_prefixes = dataset.num_prefixes if dataset.name == "prefix_repetition" else 1
    prefixes = [random_ids(dataset.prefix_len, num_ids, source) for _ in range(num_prefixes)]
    wanted_input = RANDOM_INPUT_LEN if dataset.input_len is None else dataset.input_len
    wanted_output = RANDOM_OUTPUT_LEN if dataset.output_len is None else dataset.output_len
    for index in range(dataset.num_prompts):
        input_len = max(_drawn(wanted_input, dataset.range_ratio, source), 0 if dataset.prefix_len else 1)
        output_len = max(_drawn(wanted_output, dataset.range_ratio, source), 1)
        own = random_ids(input_len, num_ids, source)
        yield BenchRequest(prefixes[index % num_prefixes] + own, output_len)


def _drawn(length: int, range_ratio: float, source: random.Random) -> int:
    low, high = round(length * (1 - range_ratio)), round(length * (1 + range_ratio))
    return source.randint(low, high)


def _read_sharegpt(dataset: Dataset, encode: Encode) -> list[BenchRequest]:
    """A JSON list of conversations: the first turn is the prompt, the second one's length the output's."""
    data = _parse(dataset, _text_of(dataset))
    if not isinstance(data, list):
        raise ConfigError(f"--dataset-path {dataset.path}: a list is expected.", param="--dataset-path")
    found = []
    for entry in data:
        turns = entry.get("conversations", []) if isinstance(entry, dict) else []
        texts = [str(turn.get("value", "")) for turn in turns[:2] if isinstance(turn, dict)]
        if len(texts) < 2:
            continue
        ids = encode(texts[0])
        output_len = dataset.output_len or len(encode(texts[1]))
        is_short = len(ids) < MIN_CHAT_TOKENS or output_len < MIN_CHAT_TOKENS and dataset.output_len is None
        is_long = len(ids) > MAX_CHAT_PROMPT or len(ids) + output_len > MAX_CHAT_TOKENS
        if not is_short and not is_long:
            found.append(BenchRequest(ids, output_len))
    return found


def _read_custom(dataset: Dataset, encode: Encode) -> list[BenchRequest]:
    """A file with one JSON object a line: `prompt`, and `output_tokens` where it has its own length."""
    found = []
    for number, line in enumerate(_text_of(dataset).splitlines(), 1):
        if not line.strip():
            continue
        entry = _parse(dataset, line)
        if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
            raise ConfigError(
                f"--dataset-path {dataset.path}: each line is an object with the key prompt.",
                param="--dataset-path",
            )
        output_len = dataset.output_len or _own_length(dataset, number, entry)
        found.append(BenchRequest(encode(entry["prompt"]), output_len))
    return found


def _own_length(dataset: Dataset, number: int, entry: Mapping[str, object]) -> int:
    """Tokens that a line asks for, written as a number or as its digits."""
    value = entry.get("output_tokens", CUSTOM_OUTPUT_LEN)
    length = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ConfigError(
            f"--dataset-path {dataset.path}, line {number}: output_tokens is {value!r}; it is a whole number from 1 "
            "on, or left out.",
            param="--dataset-path",
        )
    return length


def _text_of(dataset: Dataset) -> str:
    try:
        return Path(str(dataset.path)).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--dataset-path {dataset.path} cannot be read: {error}", param="--dataset-path"
        ) from None


def _parse(dataset: Dataset, text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"--dataset-path {dataset.path}: no valid JSON: {error}", param="--dataset-path"
        ) from None


def num_tokens(requests: Sequence[BenchRequest]) -> int:
    """Prompt tokens of all of them."""
    return sum(len(request.prompt_token_ids) for request in requests)
