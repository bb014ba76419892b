"""/requests: what others' requests took, without what they said, for whoever may know it, in bounded room."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest

from qanat.config.engine_config import ServerOptions
from qanat.core.errors import DeadlineError
from qanat.server.recent import MAX_RECORDS, RecentRequests
from qanat.server.responses import CompletionTokensDetails, PromptTokensDetails, Usage
from qanat.server.timing import Timing
from tests.support.app_server import AppServer, serving
from tests.support.fake_clock import FakeClock

COMPLETIONS = "/v1/completions"


class Figures:
    """Tells that so many tokens were made."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens

    def read(self) -> tuple[Timing, Usage]:
        details = (PromptTokensDetails(2), CompletionTokensDetails(0, 0, 0))
        return Timing(0.1, 0.2, 0.3, 0.4, 0.6, 2), Usage(4, self.num_tokens, 4 + self.num_tokens, *details)


def test_what_runs_and_what_ended_is_there_with_the_latest_first() -> None:
    clock = FakeClock()
    recent = RecentRequests(clock)
    with recent.noted("running-request", Figures(7).read):
        clock.advance(1.0)
        with recent.noted("short", Figures(3).read):
            clock.advance(0.5)
        clock.advance(1.0)
        short, running = recent.records()
    assert (short.id, short.age_s, short.duration_s, short.is_running) == ("short", 1.5, 0.5, False)
    assert (running.id, running.age_s, running.duration_s, running.is_running) == ("running-", 2.5, 2.5, True)
    assert (running.queue_s, running.prefill_s, running.decode_s, running.first_token_s) == (
        0.1,
        0.2,
        0.3,
        0.4,
    )
    counts = (running.num_prompt_tokens, running.num_cached_tokens, running.num_output_tokens)
    assert counts == (4, 2, 7)
    assert not recent.records()[1].is_running


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeadlineError("Late."), "deadline_exceeded"),
        (ValueError(), "internal_error"),
        (asyncio.CancelledError(), "client_gone"),
    ],
)
def test_how_it_ended_is_told_and_the_error_goes_on(error: BaseException, code: str) -> None:
    recent = RecentRequests()
    with pytest.raises(type(error)), recent.noted("a", Figures(0).read):
        raise error
    (record,) = recent.records()
    assert record.code == code and not record.is_running


def test_neither_many_that_ended_nor_many_that_run_take_more_room() -> None:
    recent = RecentRequests()
    last: list[weakref.ref[Figures]] = []
    for number in range(MAX_RECORDS + 5):
        figures = Figures(number)
        with recent.noted(str(number), figures.read):
            pass
        last.append(weakref.ref(figures))
        del figures
    gc.collect()
    assert not any(one() for one in last)  # what told their figures is let go
    assert len(recent.records()) == MAX_RECORDS
    assert {record.id for record in recent.records()} == {str(number) for number in range(5, MAX_RECORDS + 5)}
    with contextlib.ExitStack() as stack:
        for number in range(2 * MAX_RECORDS):
            stack.enter_context(recent.noted(f"r{number}", Figures(0).read))
        assert [record.id for record in recent.records()][:2] == ["r127", "r126"]
        assert len(recent.records()) == MAX_RECORDS


def test_times_and_counts_are_those_of_the_answer_and_no_text_is_told(server: AppServer) -> None:
    server.say(["secret ", "answer", "STOP"])
    headers = {"X-Request-Id": "0123456789abcdef"}
    body = {"prompt": "private question", "max_tokens": 2}
    answer = server.http.post(COMPLETIONS, json=body, headers=headers).json()
    response = server.http.get("/requests")
    assert not any(word in response.text for word in ("secret", "private", "89abcdef"))
    record = response.json()["requests"][0]
    assert record["id"] == "01234567" and not record["is_running"] and record["code"] == ""
    for part in ("queue_s", "prefill_s", "decode_s", "first_token_s"):
        assert record[part] == answer["timing"][part]
    assert record["num_prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert record["num_output_tokens"] == answer["usage"]["completion_tokens"] == 2
    assert (
        record["age_s"] >= record["duration_s"] >= answer["timing"]["total_s"] - record["first_token_s"] >= 0
    )


def test_a_request_under_way_is_shown_and_one_whose_client_left_is_said_to_be(server: AppServer) -> None:
    server.say(["a", "b"])
    body = {"prompt": "x", "max_tokens": 1000, "stream": True}
    client = server.scripted.client
    server.in_loop(lambda: client.release(2))
    with server.http.stream("POST", COMPLETIONS, json=body, headers={"X-Request-Id": "left"}) as response:
        lines = response.iter_lines()
        next(lines)
        record = server.http.get("/requests").json()["requests"][0]
        assert record["id"] == "left" and record["is_running"] and record["num_output_tokens"] >= 1
    server.wait_until(lambda: not server.scripted.engine.health().num_pending)
    server.in_loop(client.release)
    server.wait_until_idle()
    record = server.http.get("/requests").json()["requests"][0]
    assert (record["id"], record["is_running"], record["code"]) == ("left", False, "client_gone")


@pytest.mark.parametrize(
    ("options", "statuses"),
    [
        (ServerOptions(), {None: 200}),
        (ServerOptions(admin_api_key=("boss",)), {None: 401, "boss": 200}),
        (ServerOptions(api_key=("user",)), {None: 403, "user": 403}),
        (ServerOptions(api_key=("user",), admin_api_key=("boss",)), {None: 401, "user": 403, "boss": 200}),
    ],
)
def test_once_any_key_is_set_only_an_admin_may_know(
    options: ServerOptions, statuses: dict[str | None, int]
) -> None:
    with serving(options) as locked:
        for key, status in statuses.items():
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            assert locked.http.get("/requests", headers=headers).status_code == status, key
