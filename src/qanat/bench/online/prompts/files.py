"""Requests of files: ShareGPT's list of conversations, and JSON lines of one's own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qanat.bench.online.prompts.prompt import CUSTOM_OUTPUT_LEN, DEFAULT_OUTPUT_LEN, Dataset, Made, Prompt
from qanat.bench.online.prompts.vocabulary import Tokenize
from qanat.core.errors import ConfigError

MIN_CHAT_TOKENS, MAX_CHAT_PROMPT, MAX_CHAT_TOKENS = 4, 1024, 2048
"""Conversations that are shorter, or whose prompt or whole is longer, are left out, as vLLM does."""
CHARS_PER_TOKEN = 4


def text_of(dataset: Dataset) -> str:
    """What the data set's file holds.

    Raises:
        ConfigError: none is named, or it cannot be read.
    """
    if dataset.path is None:
        raise ConfigError(
            f"--dataset-name {dataset.name} needs its file: --dataset-path FILE.", param="--dataset-path"
        )
    try:
        return Path(dataset.path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--dataset-path {dataset.path} cannot be read: {error}", param="--dataset-path"
        ) from None


def json_lines(dataset: Dataset) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each line.

    Raises:
        ConfigError: a line is none.
    """
    for number, line in enumerate(text_of(dataset).splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise wrong_line(dataset, number, f"no valid JSON: {error}") from None
        if not isinstance(entry, dict):
            raise wrong_line(dataset, number, "an object is expected")
        yield number, entry


def wrong_line(dataset: Dataset, number: int, why: str) -> ConfigError:
    """The error of a line."""
    return ConfigError(f"--dataset-path {dataset.path}, line {number}: {why}.", param="--dataset-path")


def filled_up(dataset: Dataset, found: list[Prompt], notes: Iterable[str] = ()) -> Made:
    """As many requests as were asked for, of those that were found.

    Raises:
        ConfigError: there are none.
    """
    if not found:
        raise ConfigError(
            f"--dataset-path {dataset.path} holds no request that can be used.", param="--dataset-path"
        )
    said = list(notes)
    if len(found) < dataset.count and dataset.is_oversampled:
        said.append(
            f"{len(found)} requests were found and {dataset.count} are sent: each is used up to "
            f"{-(-dataset.count // len(found))} times, and its repeats may come out of the prefix cache. "
            "--no-oversample leaves them out."
        )
        return Made([found[number % len(found)] for number in range(dataset.count)], tuple(said), True)
    if len(found) < dataset.count:
        said.append(f"{len(found)} requests were found, {dataset.count} were asked for.")
    return Made(found[: dataset.count], tuple(said))


def read_conversations(dataset: Dataset) -> list[list[str]]:
    """The texts of each conversation of ShareGPT's form, alternating, shuffled where that is wanted.

    Raises:
        ConfigError: the file is no JSON list.
    """
    try:
        data = json.loads(text_of(dataset))
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"--dataset-path {dataset.path}: no valid JSON: {error}", param="--dataset-path"
        ) from None
    if not isinstance(data, list):
        raise ConfigError(f"--dataset-path {dataset.path}: a list is expected.", param="--dataset-path")
    found: list[list[str]] = []
    for entry in data:
        turns = entry.get("conversations") or entry.get("messages") if isinstance(entry, dict) else None
        texts = [
            str(turn.get("value", turn.get("content", "")))
            for turn in (turns if isinstance(turns, list) else [])
            if isinstance(turn, dict) and turn.get("from", turn.get("role")) != "system"
        ]
        if len(texts) >= 2:
            found.append(texts)
    if dataset.is_shuffled:
        random.Random(f"order {dataset.seed}").shuffle(found)
    return found


async def make_sharegpt(dataset: Dataset, tokenize: Tokenize | None) -> Made:
    """The first turn of each conversation is the prompt, the second one's length that of the output.

    Raises:
        ConfigError: the file is missing or of another form.
    """
    found: list[Prompt] = []
    for first, second, *_ in read_conversations(dataset):
        if len(found) == dataset.count:
            break
        input_len = await _count(first, tokenize)
        output_len = dataset.output_len or await _count(second, tokenize)
        is_short = input_len < MIN_CHAT_TOKENS or output_len < MIN_CHAT_TOKENS and dataset.output_len is None
        if is_short or input_len > MAX_CHAT_PROMPT or input_len + output_len > MAX_CHAT_TOKENS:
            continue
        found.append(Prompt(None, first, input_len if tokenize else None, output_len))
    notes = (
        [] if tokenize else ["lengths are estimated at 4 characters a token: there is no tokenizer to ask"]
    )
    return filled_up(dataset, found, notes)


async def make_custom(dataset: Dataset) -> Made:
    """A file with one JSON object a line: `prompt`, and `output_tokens` where it has its own length.

    Raises:
        ConfigError: the file is missing or of another form.
    """
    found = []
    for number, entry in json_lines(dataset):
        prompt = entry.get("prompt")
        if not isinstance(prompt, str):
            raise wrong_line(dataset, number, "each line is an object with the key prompt, a text")
        output_len = dataset.output_len or whole_number(
            dataset, number, entry, "output_tokens", CUSTOM_OUTPUT_LEN
        )
        found.append(Prompt(None, prompt, None, output_len))
    if dataset.is_shuffled:
        random.Random(f"order {dataset.seed}").shuffle(found)
    return filled_up(dataset, found)


def make_conversations(dataset: Dataset) -> Made:
    """Conversations of ShareGPT's form, every turn of the user's sent with what was really answered before it.

    Raises:
        ConfigError: the file is missing or of another form.
    """
    found = []
    for texts in read_conversations(dataset):
        said = texts[::2][: dataset.num_turns]
        output_len = dataset.output_len or DEFAULT_OUTPUT_LEN
        found.append(
            Prompt(None, said[0], None, output_len, turns=tuple((text, output_len) for text in said[1:]))
        )
    return filled_up(dataset, found)


def whole_number(
    dataset: Dataset, number: int, entry: Mapping[str, object], key: str, default: int | None = None
) -> int:
    """A whole number from 1 on in a line, written as a number or as its digits.

    Raises:
        ConfigError: it is something else, or missing and there is no default.
    """
    value = entry.get(key, default)
    length = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(length, float) and length.is_integer():
        length = int(length)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise wrong_line(dataset, number, f"{key} is {value!r}; a whole number from 1 on is expected")
    return length


async def _count(text: str, tokenize: Tokenize | None) -> int:
    ids = await tokenize(text) if tokenize is not None else None
    return len(ids) if ids is not None else -(-len(text) // CHARS_PER_TOKEN)
