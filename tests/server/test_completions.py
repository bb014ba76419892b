"""/v1/completions over a scripted model; names of tests carry the trial cases that they cover."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.support.answers import streamed_completions
from tests.support.app_server import AppServer, serving
from tests.support.scripted_engine import Piece

PATH = "/v1/completions"


def ask(server: AppServer, **fields: Any) -> dict[str, Any]:
    response = server.post(PATH, {"model": "scripted", "prompt": "x", **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def both(server: AppServer, **fields: Any) -> dict[str, Any]:
    """A whole answer, after checking that the streamed one has the same choices."""
    whole = ask(server, **fields)
    streamed = server.stream(PATH, {"model": "scripted", "prompt": "x", **fields})
    assert streamed_completions(streamed) == whole["choices"]
    return whole


def cuts(text: str) -> list[list[Piece]]:
    """The text in pieces of 1..5 characters, each size with every offset of the first cut."""
    ways = []
    for size, first in itertools.product(range(1, 6), range(1, 6)):
        if first <= size:
            ways.append([text[:first], *(text[i : i + size] for i in range(first, len(text), size))])
    return [[piece for piece in way if piece] for way in ways]


@pytest.mark.parametrize("pieces", [["ABC", "DEF", "G", "HI", "J", "KLM"], *cuts("ABCDEFGHIJKLM")])
def test_api_001_a_stop_string_over_several_tokens_never_leaks(server: AppServer, pieces: list[str]) -> None:
    server.say(pieces)
    fields = {"prompt": "alphabet:", "temperature": 0, "stop": ["DEFGHIJ"]}
    whole = both(server, **fields)["choices"][0]
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == ("ABC", "stop", "DEFGHIJ")
    chunks = server.stream(PATH, {"model": "scripted", **fields})
    assert not set("".join(chunk["choices"][0]["text"] for chunk in chunks)) & set("DEFGHIJ")


@pytest.mark.parametrize("tokens_per_step", [1, 2, 6])
@pytest.mark.parametrize("end", ["STOP", "<|im_end|>"])
def test_api_005_the_earliest_end_wins(server: AppServer, tokens_per_step: int, end: str) -> None:
    server.say(["t1", "t2", end, "t4", "t5", "t6"], tokens_per_step)
    fields: dict[str, Any] = {"stop": ["STOP"]} if end == "STOP" else {}
    choice = both(server, max_tokens=5, **fields)["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("t1t2", "stop")
    whole = both(server, max_tokens=2, **fields)
    assert (whole["choices"][0]["text"], whole["choices"][0]["finish_reason"]) == ("t1t2", "length")
    assert whole["usage"]["completion_tokens"] == 2


def test_api_007_four_forms_of_the_same_prompt(server: AppServer) -> None:
    server.say(["!"])
    forms: list[Any] = ["abc", ["abc"], [97, 98, 99], [[97, 98, 99]]]
    answers = [both(server, prompt=form, echo=True, temperature=0) for form in forms]
    assert {answer["choices"][0]["text"] for answer in answers} == {"abc!"}
    assert {answer["usage"]["prompt_tokens"] for answer in answers} == {3}


def test_api_007_several_prompts_and_samples_are_indexed_prompt_first(server: AppServer) -> None:
    server.say(["a", "b", "c", "d"])
    fields = {"prompt": [[101, 102, 103], [104, 105]], "n": 2, "max_tokens": 3, "seed": 7, "echo": True}
    whole = both(server, **fields)
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    assert [choice["text"] for choice in whole["choices"]] == ["efgabc", "efgabc", "hiabc", "hiabc"]
    assert whole["usage"]["prompt_tokens"] == 5
    assert whole["usage"]["completion_tokens"] == 12
    assert whole["usage"]["total_tokens"] == 17


def test_api_011_scoring_a_prompt_without_generating(server: AppServer) -> None:
    server.say(["!"])
    scored = both(server, prompt="The sky is blue", max_tokens=0, echo=True, logprobs=1)
    choice = scored["choices"][0]
    assert choice["text"] == "The sky is blue"
    assert choice["finish_reason"] == "length"
    assert scored["usage"]["completion_tokens"] == 0
    longer = both(server, prompt="The sky is blue", max_tokens=1, echo=True, logprobs=1)["choices"][0]
    num_prompt = len("The sky is blue")
    assert longer["logprobs"]["token_logprobs"][:num_prompt] == choice["logprobs"]["token_logprobs"]
    assert len(longer["logprobs"]["token_logprobs"]) == num_prompt + 1


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 194])
def test_api_012_prompt_logprobs_are_complete_every_time(server: AppServer, length: int) -> None:
    server.say(["!"])
    prompt = [i % 256 for i in range(length)]
    answers = [both(server, prompt=prompt, max_tokens=1, echo=True, logprobs=1) for _ in range(3)]
    logprobs = answers[0]["choices"][0]["logprobs"]
    assert len(logprobs["token_logprobs"]) == length + 1
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["top_logprobs"][0] is None
    assert None not in logprobs["token_logprobs"][1:]
    assert all(answer["choices"][0]["logprobs"] == logprobs for answer in answers)


def test_api_012_prompt_logprobs_are_complete_with_small_chunks() -> None:
    with serving(max_num_batched_tokens=16) as server:
        server.say(["!"])
        whole = both(server, prompt=list(range(200)), max_tokens=1, echo=True, logprobs=2, temperature=0)
        assert len(whole["choices"][0]["logprobs"]["tokens"]) == 201
        server.wait_until_idle()


def test_echo_offsets_point_into_the_text(server: AppServer) -> None:
    server.say(["Hel", "lo"])
    choice = both(server, prompt="a<think>é", echo=True, logprobs=0)["choices"][0]
    assert choice["text"] == "a<think>éHello"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["a", "<think>", "bytes:\\xc3", "bytes:\\xa9", "Hel", "lo", "<|im_end|>"]
    assert logprobs["text_offset"] == [0, 1, 8, 8, 9, 12, 14]
    assert logprobs["top_logprobs"][1] == {"<think>": pytest.approx(-0.105, abs=1e-3)}


def test_logprobs_hold_as_many_alternatives_as_asked_for_and_the_chosen_token(server: AppServer) -> None:
    server.say(["yes"])
    choice = both(server, logprobs=3, max_tokens=1)["choices"][0]
    top = choice["logprobs"]["top_logprobs"][0]
    assert len(top) == 3
    assert top["yes"] == choice["logprobs"]["token_logprobs"][0] == max(top.values())


def test_tokens_can_be_spelled_as_ids(server: AppServer) -> None:
    server.say(["a"])
    choice = both(server, prompt=[98], echo=True, logprobs=1, max_tokens=1, return_tokens_as_token_ids=True)
    logprobs = choice["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["token_id:98", f"token_id:{server.scripted.tokenizer.piece_id('a')}"]
    assert set(logprobs["top_logprobs"][1]) == {logprobs["tokens"][1]}


def test_prompt_logprobs_in_vllms_form(server: AppServer) -> None:
    server.say(["!"])
    whole = ask(server, prompt="ab", max_tokens=1, prompt_logprobs=1)
    first, second = whole["choices"][0]["prompt_logprobs"]
    assert first is None
    assert second["98"] == {"logprob": pytest.approx(-0.105, abs=1e-3), "rank": 1, "decoded_token": "b"}


def test_max_tokens_is_16_where_the_request_names_none(server: AppServer) -> None:
    server.say(["a"] * 40)
    assert both(server)["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("num_prompt", [1, 10])
@pytest.mark.parametrize("min_tokens", [0, 3, 6])
@pytest.mark.parametrize("has_stop", [False, True])
def test_api_069_ignore_eos_and_min_tokens(
    server: AppServer, num_prompt: int, min_tokens: int, has_stop: bool
) -> None:
    server.say(["a", "<|im_end|>", "b", "<|endoftext|>", "c", "d", "e", "f", "b", "g"])
    stop_id = server.scripted.tokenizer.piece_id("b")
    fields: dict[str, Any] = {"stop_token_ids": [stop_id]} if has_stop else {}
    whole = both(
        server, prompt="x" * num_prompt, max_tokens=6, ignore_eos=True, min_tokens=min_tokens, **fields
    )
    choice, num_tokens = whole["choices"][0], whole["usage"]["completion_tokens"]
    if has_stop and min_tokens == 0:
        assert (num_tokens, choice["finish_reason"], choice["stop_reason"]) == (3, "stop", stop_id)
    else:
        assert (num_tokens, choice["finish_reason"]) == (6, "length")


def test_min_tokens_holds_the_end_back(server: AppServer) -> None:
    server.say(["a", "<|im_end|>", "b"])
    assert both(server, min_tokens=2)["choices"][0]["text"] == "ab"


def test_stop_strings_included_on_request(server: AppServer) -> None:
    server.say(["one", " two", " three"])
    choice = both(server, stop="two", include_stop_str_in_output=True)["choices"][0]
    assert choice["text"] == "one two"


@pytest.mark.parametrize("is_skipped", [True, False])
def test_special_tokens_are_text_only_on_request(server: AppServer, is_skipped: bool) -> None:
    server.say(["a", "<|im_start|>", "b"])
    choice = both(server, skip_special_tokens=is_skipped)["choices"][0]
    assert choice["text"] == ("ab" if is_skipped else "a<|im_start|>b")


def test_allowed_tokens_and_bias_reach_the_model(server: AppServer) -> None:
    server.say(["a", "b", "c"])
    ids = [server.scripted.tokenizer.piece_id(piece) for piece in ("a", "b", "c")]
    assert both(server, allowed_token_ids=ids[1:], max_tokens=2)["choices"][0]["text"] == "bc"
    assert both(server, logit_bias={str(ids[0]): -100}, max_tokens=2)["choices"][0]["text"] == "bc"


@pytest.mark.parametrize("tokens_per_step", [1, 2, 3, 4])
def test_api_016_characters_split_over_tokens_stay_whole(server: AppServer, tokens_per_step: int) -> None:
    pieces: list[Piece] = [b"Hi ", b"\xf0\x9f", b"\x91\x8b", b"\xe4", b"\xbd\xa0", b"!"]
    server.say(pieces, tokens_per_step)
    assert both(server, n=2)["choices"][1]["text"] == "Hi 👋你!"


def test_an_unfinished_character_at_the_end_is_not_lost(server: AppServer) -> None:
    server.say([b"a", b"\xf0\x9f", b"\x91"])
    assert both(server, max_tokens=2)["choices"][0]["text"] == "a�"


@pytest.mark.parametrize("n", [1, 2])
def test_api_018_usage_comes_once_at_the_end(server: AppServer, n: int) -> None:
    server.say(["a", "b"])
    body = {"model": "scripted", "prompt": "xyz", "n": n, "max_tokens": 5}
    chunks = server.stream(PATH, {**body, "stream_options": {"include_usage": True}})
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == ask(server, **body)["usage"]
    assert chunks[-1]["usage"]["total_tokens"] == 3 + 3 * n
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert all("usage" not in chunk for chunk in server.stream(PATH, body))


def test_the_name_reported_is_the_first(server: AppServer) -> None:
    server.say(["a"])
    assert ask(server, model="scripted-alias")["model"] == "scripted"


def test_the_official_client_completes_and_streams(server: AppServer) -> None:
    server.say(["Hel", "lo"])
    with server.client() as client:
        whole = client.completions.create(model="scripted", prompt="x", temperature=0, max_tokens=5)
        assert whole.choices[0].text == "Hello"
        assert whole.usage is not None and whole.usage.completion_tokens == 3
        stream = client.completions.create(model="scripted", prompt="x", stream=True, extra_body={"top_k": 1})
        assert "".join(chunk.choices[0].text for chunk in stream) == "Hello"
