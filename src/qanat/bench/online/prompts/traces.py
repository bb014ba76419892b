"""Requests at the times and of the lengths of a recorded trace: Mooncake's JSON lines and BurstGPT's table.

Traces hold no text. Tokens are made up: equal hash ids become equal blocks, so that prefixes are shared as they were.
"""

from __future__ import annotations

import csv
from dataclasses import replace

from qanat.bench.online.prompts.files import filled_up, json_lines, text_of, whole_number, wrong_line
from qanat.bench.online.prompts.prompt import Dataset, Made, Prompt
from qanat.bench.online.prompts.random_prompts import tokens_of
from qanat.bench.online.prompts.vocabulary import Vocabulary
from qanat.core.errors import ConfigError

LABELS = {
    "timestamp": "timestamp",
    "input": "input_length",
    "output": "output_length",
    "hash_ids": "hash_ids",
}
MOONCAKE_UNIT_S, MOONCAKE_BLOCK_LEN = 0.001, 512
BURST_TIME, BURST_INPUT, BURST_OUTPUT = "Timestamp", "Request tokens", "Response tokens"


def make_trace(dataset: Dataset, vocabulary: Vocabulary, *, takes_ids: bool) -> Made:
    """A trace of JSON lines with time, lengths and hash ids of blocks, in the order of time.

    Raises:
        ConfigError: the file is missing or of another form.
    """
    labels = {**LABELS, **dataset.labels}
    entries = []
    for number, entry in json_lines(dataset):
        time = entry.get(labels["timestamp"])
        if isinstance(time, bool) or not isinstance(time, int | float):
            raise wrong_line(dataset, number, f"{labels['timestamp']} is {time!r}; a number is expected")
        hashes = entry.get(labels["hash_ids"], [])
        if not isinstance(hashes, list):
            raise wrong_line(dataset, number, f"{labels['hash_ids']} is no list")
        input_len = whole_number(dataset, number, entry, labels["input"])
        output_len = dataset.output_len or whole_number(dataset, number, entry, labels["output"])
        entries.append((float(time), input_len, output_len, hashes))
    entries.sort(key=lambda one: one[0])
    start = entries[0][0] if entries else 0.0
    prompts = []
    for place, (time, input_len, output_len, hashes) in enumerate(entries[: dataset.count]):
        at_s = (time - start) * dataset.trace_unit_s
        lengths = input_len, output_len
        prompts.append(_prompt(dataset, vocabulary, hashes, lengths, (place, at_s), takes_ids=takes_ids))
    has_hashes = any(hashes for *_, hashes in entries)
    made = filled_up(_as_it_is(dataset), prompts)
    return Made(made.prompts, made.notes, has_hashes)


def make_burst(dataset: Dataset, vocabulary: Vocabulary, *, takes_ids: bool) -> Made:
    """BurstGPT's table: failed requests, whose answer has no token, are left out.

    Raises:
        ConfigError: the file is missing or of another form.
    """
    rows = csv.DictReader(text_of(dataset).splitlines())
    missing = {BURST_TIME, BURST_INPUT, BURST_OUTPUT} - set(rows.fieldnames or ())
    if missing:
        raise ConfigError(
            f"--dataset-path {dataset.path}: no column {' and '.join(sorted(missing))}.",
            param="--dataset-path",
        )
    found: list[tuple[float, int, int]] = []
    for number, row in enumerate(rows, 2):
        if str(row[BURST_OUTPUT]).strip() in ("", "0"):
            continue
        try:
            time = float(row[BURST_TIME])
        except (TypeError, ValueError):
            raise wrong_line(dataset, number, f"{BURST_TIME} is {row[BURST_TIME]!r}") from None
        input_len, output_len = (
            whole_number(dataset, number, dict(row), key) for key in (BURST_INPUT, BURST_OUTPUT)
        )
        found.append((time, input_len, output_len))
    found.sort(key=lambda one: one[0])
    prompts = []
    for place, (time, input_len, output_len) in enumerate(found[: dataset.count]):
        at_s = (time - found[0][0]) * dataset.trace_unit_s
        lengths = input_len, dataset.output_len or output_len
        prompts.append(_prompt(dataset, vocabulary, [], lengths, (place, at_s), takes_ids=takes_ids))
    return filled_up(_as_it_is(dataset), prompts)


def _as_it_is(dataset: Dataset) -> Dataset:
    """A trace is not played twice: its times would not fit."""
    return replace(dataset, is_oversampled=False)


def _prompt(
    dataset: Dataset,
    vocabulary: Vocabulary,
    hashes: list[object],
    lengths: tuple[int, int],
    at: tuple[int, float],
    *,
    takes_ids: bool,
) -> Prompt:
    """The prompt of an entry: tokens of its blocks, then its own.

    Args:
        dataset: what is wanted.
        vocabulary: what prompts are made of.
        hashes: of its blocks.
        lengths: tokens of prompt and output.
        at: its place in the trace, and its time in seconds.
        takes_ids: the API takes token ids.
    """
    input_len, output_len = lengths
    known = range(len(vocabulary.ids if takes_ids else vocabulary.words))
    places: list[int] = []
    for one in hashes:
        size = min(dataset.trace_block_len, input_len - len(places))
        if size <= 0:
            break
        places += tokens_of(dataset, f"block {one}").choices(known, k=size)
    places += tokens_of(dataset, f"own {at[0]}").choices(known, k=input_len - len(places))
    if takes_ids:
        return Prompt([vocabulary.ids[place] for place in places], "", input_len, output_len, at[1])
    text = " ".join(vocabulary.words[place] for place in places)
    return Prompt(None, text, input_len, output_len, at[1])
