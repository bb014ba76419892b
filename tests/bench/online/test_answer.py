from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.bench.online.answer import BY_CHUNKS, BY_IDS, BY_RUNNING_USAGE, BY_USAGE, BY_WORDS
from qanat.bench.online.measures import chunk_gaps_s, e2el_s, token_gaps_s, tpot_s, ttft_s
from tests.bench.online.scripted import END, HEAD, answer_of, event, framed, streamed, text_event, usage


def ms(values: list[float]) -> list[float]:
    return [round(1e3 * value, 6) for value in values]


def test_the_first_token_is_no_gap_and_the_definitions_are_vllms() -> None:
    answer = streamed([1000 + 10 * number for number in range(10)])
    assert answer.is_ok and answer.num_output_tokens == 10
    assert ttft_s(answer, "sent") == pytest.approx(1.0)
    assert ms(token_gaps_s(answer)) == [10] * 9
    assert tpot_s(answer) == pytest.approx(0.01)
    assert e2el_s(answer, "sent") == pytest.approx(1.09)


def test_several_tokens_of_a_chunk_share_its_time() -> None:
    answer = streamed([40 * number for number in range(1, 11)], tokens=4)
    assert (answer.num_output_tokens, answer.counter) == (40, BY_USAGE)
    assert tpot_s(answer) == pytest.approx(0.36 / 39)
    assert ms(chunk_gaps_s(answer)) == [40] * 9
    assert ms(token_gaps_s(answer)) == [0] * 3 + [10] * 36


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), min_size=1, max_size=12))
def test_gaps_are_one_fewer_than_tokens_and_add_up(chunks: list[tuple[int, int]]) -> None:
    at, done, pieces = 3.0, 0, [(0.0, HEAD)]
    for wait, count in chunks:
        at, done = at + wait, done + count
        pieces.append((at, text_event(" a" * count, usage=usage(done))))
    answer = answer_of([*pieces, (at, END)])
    assert answer.num_output_tokens == done
    assert answer.is_ok == bool(done)
    gaps = token_gaps_s(answer)
    assert len(gaps) == max(0, done - 1)
    times = [time for time, count in zip(answer.chunk_times_s, answer.chunk_tokens, strict=True) if count]
    assert sum(gaps) == pytest.approx(times[-1] - times[0] if times else 0.0)
    if done:
        assert answer.counter == BY_RUNNING_USAGE


def test_counters_are_named_and_ids_go_first() -> None:
    ids = [(0.0, HEAD), (1.0, event(choices=[{"text": "ab", "token_ids": [1, 2]}], usage=usage(2)))]
    assert answer_of([*ids, (2.0, END)]).counter == BY_IDS
    plain = answer_of([(0.0, HEAD), (1.0, text_event("a")), (2.0, text_event("b")), (2.0, END)])
    assert (plain.counter, plain.num_output_tokens, plain.num_prompt_tokens) == (BY_CHUNKS, 2, None)
    whole = json.dumps({"choices": [{"text": "one two"}]}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole)
    answer = answer_of([(7.0, head + whole)])
    assert (answer.counter, answer.num_output_tokens) == (BY_WORDS, 2)


def test_usage_with_the_last_chunk_alone_counts_once() -> None:
    pieces = [
        (0.0, HEAD),
        (1.0, text_event("a")),
        (2.0, text_event("b")),
        (3.0, text_event("c", usage=usage(3))),
    ]
    answer = answer_of([*pieces, (3.0, END)])
    assert (answer.counter, list(answer.chunk_tokens)) == (BY_USAGE, [1, 1, 1])


def test_an_answer_in_one_piece_has_no_time_to_first_token() -> None:
    whole = json.dumps({"choices": [{"message": {"content": "hi"}}], "usage": usage(3)}).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(whole)
    answer = answer_of([(50.0, head), (70.0, whole)])
    assert answer.is_ok and answer.text == "hi" and answer.num_output_tokens == 3
    assert ttft_s(answer, "sent") is None and tpot_s(answer) is None and token_gaps_s(answer) == []
    assert e2el_s(answer, "sent") == pytest.approx(0.07)


def test_thinking_and_tool_calls_are_tokens_and_a_role_is_none() -> None:
    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"tool_calls": [{"index": 0}]},
    ]
    pieces = [(float(at), event(choices=[{"delta": delta}])) for at, delta in enumerate(deltas)]
    answer = answer_of([(0.0, HEAD), *pieces, (9.0, END)])
    assert [round(1e3 * time) for time in answer.chunk_times_s] == [1, 2]
    assert answer.text == "hm"


@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([(0.0, HEAD), (1.0, END)], "empty"),
        ([(0.0, HEAD), (1.0, text_event("a"))], "cut"),
        ([(0.0, HEAD), (1.0, event(error={"message": "out of luck"})), (1.0, END)], "stream_error"),
        ([(0.0, HEAD), (1.0, framed(b"data: {nope\n\n")), (1.0, END)], "no_json"),
        ([(0.0, b"HTTP/1.1 503 X\r\nContent-Length: 9\r\n\r\nout of it")], "http_503"),
        ([(0.0, b"SMTP ready\r\n")], "no_http"),
        ([(0.0, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")], "no_json"),
    ],
)
def test_failures_have_a_kind_and_a_message(pieces: list[tuple[float, bytes]], kind: str) -> None:
    answer = answer_of(pieces)
    assert answer.failure == kind
    assert answer.message


def test_a_loop_shows_and_text_is_kept_only_where_wanted() -> None:
    loop = streamed(list(range(1, 41)), has_text=False)
    assert loop.text == "" and loop.distinct_pairs == pytest.approx(1 / 40)
    assert streamed([1, 2]).distinct_pairs is None
