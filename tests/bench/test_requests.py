from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.requests import Dataset, make_requests, num_tokens
from qanat.core.errors import ConfigError


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


@given(
    num_prompts=st.integers(1, 20),
    input_len=st.integers(1, 50),
    output_len=st.integers(1, 50),
    prefix_len=st.integers(0, 10),
    range_ratio=st.floats(0, 0.9),
    num_ids=st.integers(1, 20_000),
    seed=st.integers(0, 5),
)
def test_random_requests_have_the_lengths_that_were_asked_for(
    num_prompts: int,
    input_len: int,
    output_len: int,
    prefix_len: int,
    range_ratio: float,
    num_ids: int,
    seed: int,
) -> None:
    dataset = Dataset(
        num_prompts=num_prompts,
        input_len=input_len,
        output_len=output_len,
        prefix_len=prefix_len,
        range_ratio=range_ratio,
        seed=seed,
    )
    requests = make_requests(dataset, num_ids, letters)
    assert requests == make_requests(dataset, num_ids, letters)
    assert len(requests) == num_prompts
    for request in requests:
        own = len(request.prompt_token_ids) - prefix_len
        assert abs(own - input_len) <= input_len * range_ratio + 1
        assert 1 <= request.output_len
        assert abs(request.output_len - output_len) <= output_len * range_ratio + 1
        assert all(0 <= each < num_ids for each in request.prompt_token_ids)
        assert request.prompt_token_ids[:prefix_len] == requests[0].prompt_token_ids[:prefix_len]
    assert num_tokens(requests) == sum(len(request.prompt_token_ids) for request in requests)


@pytest.mark.parametrize("value", ['"x"', "null", "[1]", "0", "-3", "2.5", "true"])
def test_a_length_that_is_none_is_refused_with_its_line(value: str, tmp_path: Path) -> None:
    path = tmp_path / "custom.jsonl"
    path.write_text(
        f'{{"prompt": "a", "output_tokens": "12"}}\n{{"prompt": "b", "output_tokens": {value}}}\n'
    )
    with pytest.raises(ConfigError, match="line 2: output_tokens"):
        make_requests(Dataset("custom", str(path)), 9000, letters)
    again = Dataset("custom", str(path), 3, output_len=4)
    assert len(make_requests(again, 9000, letters)) == 3
    assert len(make_requests(replace(again, is_oversampled=False), 9000, letters)) == 2


def test_prefixes_repeat() -> None:
    dataset = Dataset("prefix_repetition", num_prompts=6, input_len=3, prefix_len=8, num_prefixes=2)
    beginnings = [tuple(request.prompt_token_ids[:8]) for request in make_requests(dataset, 9000, letters)]
    assert beginnings[0::2] == [beginnings[0]] * 3
    assert beginnings[1::2] == [beginnings[1]] * 3
    assert beginnings[0] != beginnings[1]


def test_defaults_are_vllms() -> None:
    [request] = make_requests(Dataset(num_prompts=1), 9000, letters)
    assert (len(request.prompt_token_ids), request.output_len) == (1024, 128)


def test_conversations_of_sharegpt(tmp_path: Path) -> None:
    def turns(*texts: str) -> dict[str, object]:
        return {"conversations": [{"from": "human", "value": text} for text in texts]}

    path = tmp_path / "talks.json"
    short, long = turns("abc", "defgh"), turns("x" * 1025, "defgh")
    path.write_text(json.dumps([turns("hello", "worlds"), short, long, turns("alone"), {}]))
    dataset = Dataset("sharegpt", str(path), num_prompts=3)
    requests = make_requests(dataset, 9000, letters)
    assert [(request.prompt_token_ids, request.output_len) for request in requests] == [
        (letters("hello"), 6)
    ] * 3
    [request] = make_requests(Dataset("sharegpt", str(path), num_prompts=1, output_len=7), 9000, letters)
    assert request.output_len == 7


def test_custom_lines(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "ab"}\n\n{"prompt": "cde", "output_tokens": 5}\n')
    requests = make_requests(Dataset("custom", str(path), num_prompts=2), 9000, letters)
    assert {(len(request.prompt_token_ids), request.output_len) for request in requests} == {(2, 256), (3, 5)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("custom", '{"text": "ab"}', "the key prompt"),
        ("custom", "nonsense", "no valid JSON"),
        ("custom", "", "no request"),
        ("sharegpt", "{}", "a list is expected"),
        ("sharegpt", "[{}]", "no request"),
    ],
)
def test_a_file_of_another_form_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_requests(Dataset(name, str(path)), 9000, letters)


def test_a_file_must_be_named_and_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--dataset-path FILE"):
        make_requests(Dataset("sharegpt"), 9000, letters)
    with pytest.raises(ConfigError, match="cannot be read"):
        make_requests(Dataset("custom", str(tmp_path / "none")), 9000, letters)
