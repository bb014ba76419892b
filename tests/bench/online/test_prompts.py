from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qanat.bench.online.prompts.make import make_prompts
from qanat.bench.online.prompts.prompt import Dataset, Made
from qanat.bench.online.prompts.vocabulary import Vocabulary, learn_vocabulary, unchecked
from qanat.core.errors import ConfigError


async def by_words(text: str) -> list[int] | None:
    """A tokenizer with a token for each word; of those that begin with t one more."""
    return [number for word in text.split() for number in range(1 + word.startswith("t"))]


def vocabulary() -> Vocabulary:
    found = asyncio.run(learn_vocabulary(by_words, "test"))
    assert found is not None
    return found


def made(dataset: Dataset, *, takes_ids: bool = True, tokenizes: bool = True) -> Made:
    tokenize = by_words if tokenizes else None
    return asyncio.run(make_prompts(dataset, unchecked(), tokenize, takes_ids=takes_ids))


def test_words_of_one_token_are_found_and_texts_of_them_are_exact() -> None:
    found = vocabulary()
    assert found.is_exact and len(found.words) > 100
    assert not any(word.startswith("t") for word in found.words)
    dataset = Dataset(count=20, input_len=33)
    texts = asyncio.run(make_prompts(dataset, found, by_words, takes_ids=False)).prompts
    assert all(len(asyncio.run(by_words(prompt.text)) or ()) == 33 for prompt in texts)


def test_a_tokenizer_without_such_words_is_said_to_be_inexact() -> None:
    async def by_letters(text: str) -> list[int] | None:
        return list(text.encode())

    found = asyncio.run(learn_vocabulary(by_letters, "test"))
    assert found is not None and not found.is_exact and len(found.ids) > 10


@pytest.mark.parametrize("takes_ids", [True, False])
def test_random_prompts_are_unique_from_the_first_block_on(takes_ids: bool) -> None:
    prompts = made(Dataset(count=300, input_len=40, output_len=7), takes_ids=takes_ids).prompts
    if takes_ids:
        assert all(len(prompt.token_ids or ()) == 40 and prompt.output_len == 7 for prompt in prompts)
    begins = {tuple((prompt.token_ids or prompt.text.split())[:16]) for prompt in prompts}
    assert len(begins) == 300


def test_the_seed_makes_the_same_prompts_and_the_run_id_others() -> None:
    dataset = Dataset(count=5, input_len=30, range_input=0.5)
    same, other = made(dataset), made(replace(dataset, run_id="b"))
    assert made(dataset) == same
    assert [prompt.input_len for prompt in other.prompts] == [prompt.input_len for prompt in same.prompts]
    assert all(one.token_ids != two.token_ids for one, two in zip(same.prompts, other.prompts, strict=True))


def test_lengths_lie_in_their_range_and_prefixes_are_shared() -> None:
    dataset = Dataset(count=100, input_len=50, output_len=20, prefix_len=8, range_input=0.2, range_output=0.5)
    prompts = made(dataset).prompts
    assert {len(prompt.token_ids or ()) for prompt in prompts} <= set(range(48, 69))
    assert {prompt.output_len for prompt in prompts} <= set(range(10, 31))
    assert len({tuple((prompt.token_ids or ())[:8]) for prompt in prompts}) == 1
    groups = made(replace(dataset, name="prefix_repetition", num_prefixes=4))
    assert len({tuple((prompt.token_ids or ())[:8]) for prompt in groups.prompts}) == 4
    assert groups.shares_prefixes


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_sharegpt_takes_lengths_from_the_answers_and_leaves_out_what_vllm_does(tmp_path: Path) -> None:
    def entry(asked: int, said: int) -> dict[str, Any]:
        turns = [{"from": "human", "value": "a " * asked}, {"from": "gpt", "value": "b " * said}]
        return {"conversations": turns}

    entries = [entry(10, 20), entry(2, 20), entry(2000, 5), entry(12, 9), {"conversations": []}]
    path = write(tmp_path / "s.json", json.dumps(entries))
    dataset = Dataset(name="sharegpt", path=path, count=4, is_shuffled=False)
    found = made(dataset)
    assert [(one.input_len, one.output_len) for one in found.prompts] == [(10, 20), (12, 9)] * 2
    assert found.shares_prefixes and "up to 2 times" in found.notes[0]
    assert len(made(replace(dataset, is_oversampled=False)).prompts) == 2
    assert "4 characters" in made(dataset, tokenizes=False).notes[0]


def test_custom_lines_have_their_own_length_or_the_default(tmp_path: Path) -> None:
    lines = '{"prompt": "one"}\n\n{"prompt": "two", "output_tokens": "7"}\n'
    dataset = Dataset(name="custom", path=write(tmp_path / "c.jsonl", lines), count=2, is_shuffled=False)
    assert [(one.text, one.output_len) for one in made(dataset).prompts] == [("one", 256), ("two", 7)]
    assert {one.output_len for one in made(replace(dataset, output_len=3)).prompts} == {3}


def test_conversations_have_turns(tmp_path: Path) -> None:
    turns = [{"from": who, "value": f"{who} {number}"} for number in range(3) for who in ("human", "gpt")]
    path = write(tmp_path / "s.json", json.dumps([{"conversations": turns}]))
    (prompt,) = made(Dataset(name="multi_turn", path=path, count=1, num_turns=2), takes_ids=False).prompts
    assert (prompt.text, prompt.turns) == ("human 0", (("human 1", 128),))
    random_ones = made(Dataset(name="multi_turn", count=2, num_turns=3, input_len=5), takes_ids=False).prompts
    assert [len(one.turns) for one in random_ones] == [2, 2]


def test_a_mooncake_trace_keeps_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    entries = [
        {"timestamp": 3000, "input_length": 1100, "output_length": 4, "hash_ids": [1, 2, 5]},
        {"timestamp": 1000, "input_length": 1030, "output_length": 3, "hash_ids": [1, 2, 3]},
    ]
    path = write(tmp_path / "m.jsonl", "\n".join(map(json.dumps, entries)))
    dataset = Dataset(name="mooncake", path=path, count=10, trace_unit_s=0.001, trace_block_len=512)
    found = made(dataset)
    first, second = found.prompts
    assert (first.at_s, first.output_len, second.at_s, second.output_len) == (0.0, 3, 2.0, 4)
    assert first.token_ids is not None and second.token_ids is not None
    assert (len(first.token_ids), len(second.token_ids)) == (1030, 1100)
    assert first.token_ids[:1024] == second.token_ids[:1024]
    assert first.token_ids[1024:1030] != second.token_ids[1024:1030]
    assert found.shares_prefixes and "2 requests were found" in found.notes[0]
    assert all(one.text for one in made(dataset, takes_ids=False).prompts)


def test_a_burst_trace_leaves_out_failed_requests(tmp_path: Path) -> None:
    rows = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    rows += "5,GPT-4,40,10,50,API log\n7,ChatGPT,30,0,30,API log\n8.5,GPT-4,20,5,25,API log\n"
    dataset = Dataset(name="burstgpt", path=write(tmp_path / "b.csv", rows), count=10)
    found = made(dataset).prompts
    assert [(one.at_s, one.input_len, one.output_len) for one in found] == [(0.0, 40, 10), (3.5, 20, 5)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("custom", '{"prompt": 3}', "line 1: each line is an object with the key prompt"),
        ("custom", '{"prompt": "a", "output_tokens": 0}', "output_tokens is 0"),
        ("custom", "nope", "no valid JSON"),
        ("custom", "", "holds no request"),
        ("sharegpt", "{}", "a list is expected"),
        ("mooncake", '{"timestamp": "a"}', "timestamp is 'a'"),
        ("timed_trace", '{"timestamp": 1, "input_length": 0, "output_length": 1}', "input_length is 0"),
        ("burstgpt", "a,b\n1,2\n", "no column"),
    ],
)
def test_files_of_another_form_are_refused_with_the_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        made(Dataset(name=name, path=write(tmp_path / "file", text), count=2))
    with pytest.raises(ConfigError, match="cannot be read"):
        made(Dataset(name=name, path=str(tmp_path / "missing"), count=2))
    with pytest.raises(ConfigError, match="needs its file"):
        made(Dataset(name=name, count=2))
