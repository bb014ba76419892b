"""Forms through the engine's door: real compile process, real front end and scheduler, a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from qanat.core.constraint import Thinking
from qanat.core.errors import (
    DeadlineError,
    EngineDeadError,
    InvalidRequestError,
    QueueFullError,
    StructuredOutputError,
)
from qanat.core.events import GenerationEvent
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.core.timeouts import Timeouts
from tests.support.scripted_engine import ScriptedEngine, start_scripted_engine

ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}


async def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited for a minute")


async def collect(
    scripted: ScriptedEngine,
    form: StructuredOutputsParams | None,
    *,
    request_id: str | None = None,
    thinking: Thinking = Thinking.NONE,
    output_token_ids: Sequence[Sequence[int] | None] = (),
    **sampling: Any,
) -> list[GenerationEvent]:
    params = SamplingParams(**({"max_tokens": 200} | sampling), structured_outputs=form)
    stream = scripted.engine.generate(
        [65, 66],
        params,
        request_id=request_id,
        thinking=thinking,
        output_token_ids=output_token_ids,
    )
    return [event async for event in stream]


def text_of(events: list[GenerationEvent], index: int = 0) -> str:
    return "".join(event.text for event in events if event.index == index)


def scripted_run(test: Callable[[ScriptedEngine], Awaitable[None]], **limits: Any) -> None:
    async def run() -> None:
        scripted = start_scripted_engine(**limits)
        try:
            await test(scripted)
        finally:
            await scripted.engine.shutdown()

    asyncio.run(run())


@pytest.mark.parametrize("num_at_once", [1, 3])
def test_what_the_form_forbids_is_not_said(num_at_once: int) -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(["Sure! ", '{"answer"', ": ", '"17"', "}", " Anything else?"], num_at_once)
        events = await collect(scripted, StructuredOutputsParams(json=ANSWER))
        assert json.loads(text_of(events)) == {"answer": "17"}
        assert events[-1].finish_reason is FinishReason.STOP
        assert [event.finish_reason for event in events].count(FinishReason.STOP) == 1

    scripted_run(test)


@pytest.mark.parametrize(
    ("thinking", "pieces", "expected"),
    [
        (Thinking.OPEN, ["hm ", "{}", "</think>", "\n\n", "No. ", '{"answer": "a"}'], "hm {}</think>\n\n"),
        (Thinking.OPTIONAL, ["<think>", "hm", "</think>", '{"answer": "a"}'], "<think>hm</think>"),
        (Thinking.OPTIONAL, ["No. ", '{"answer": "a"}'], ""),
        (Thinking.NONE, ["<think>", "hm", "</think>", '{"answer": "a"}'], ""),
    ],
)
def test_api_053_thoughts_are_free_and_the_form_begins_after_them(
    thinking: Thinking, pieces: list[str], expected: str
) -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(pieces)
        events = await collect(scripted, StructuredOutputsParams(json=ANSWER), thinking=thinking)
        assert text_of(events) == expected + '{"answer": "a"}'

    scripted_run(test)


def test_a_stop_string_and_the_length_end_an_output_before_its_form() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(['{"answer": ', '"one STOP two"', "}"])
        stopped = await collect(scripted, StructuredOutputsParams(json=ANSWER), stop=["STOP"])
        assert text_of(stopped) == '{"answer": "one '
        assert stopped[-1].finish_reason is FinishReason.STOP
        cut = await collect(scripted, StructuredOutputsParams(json=ANSWER), max_tokens=1)
        assert (text_of(cut), cut[-1].finish_reason) == ('{"answer": ', FinishReason.LENGTH)

    scripted_run(test)


def test_each_of_several_choices_has_the_form_and_can_be_continued() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(["{", '"answer"', ":", '"x"', "}"])
        form = StructuredOutputsParams(json=ANSWER)
        whole = await collect(scripted, form, n=3, seed=1)
        assert [json.loads(text_of(whole, i)) for i in range(3)] == [{"answer": "x"}] * 3
        prior = [token_id for event in whole if event.index == 1 for token_id in event.token_ids][:2]
        rest = await collect(scripted, form, n=3, seed=1, output_token_ids=[None, prior, None])
        assert text_of(rest, 1) == ':"x"}'
        with pytest.raises(StructuredOutputError):
            await collect(scripted, form, output_token_ids=[[97]], seed=1)

    scripted_run(test)


def test_api_056_a_bad_form_is_refused_while_others_run() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(["a"] * 20)
        scripted.client.hold()
        plain = asyncio.create_task(collect(scripted, None))
        await wait_until(lambda: scripted.core.has_work)
        for form in (
            StructuredOutputsParams(regex="("),
            StructuredOutputsParams(json={"type": "object", "properties": {"foo": "bar"}}),
            StructuredOutputsParams(json={"type": "array", "minItems": 2, "maxItems": 1}),
        ):
            with pytest.raises(StructuredOutputError):
                await collect(scripted, form)
        scripted.client.release()
        events = await plain
        assert text_of(events) == "a" * 20
        stats = scripted.engine.stats()
        assert stats.compiler.num_refusals == 3
        assert stats.num_finished["stop"] == 1

    scripted_run(test)


def alternatives(keyword: str, depth: int) -> dict[str, Any]:
    """Nested alternatives, whose number grows with the depth's power."""
    if depth == 0:
        return {"type": "string"}
    inner = alternatives(keyword, depth - 1)
    options = [
        {"type": "object", "properties": {"kind": {"const": k}, "next": inner}, "required": ["kind", "next"]}
        for k in range(2)
    ]
    return {keyword: options}


HOSTILE: dict[str, StructuredOutputsParams] = {
    **{f"oneOf {d}": StructuredOutputsParams(json=alternatives("oneOf", d)) for d in (4, 8, 12)},
    **{f"anyOf {d}": StructuredOutputsParams(json=alternatives("anyOf", d)) for d in (4, 8, 12)},
    "recursive": StructuredOutputsParams(
        json={
            "$ref": "#/$defs/n",
            "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "type": "object"}},
        }
    ),
    "10,000 words": StructuredOutputsParams(json={"enum": [f"word {i}" for i in range(10_000)]}),
    "long text": StructuredOutputsParams(json={"type": "string", "maxLength": 100_000}),
    "counts in counts": StructuredOutputsParams(regex="((a{1,1000}b){1,1000}c){1,1000}"),
    "wide": StructuredOutputsParams(regex="(.*a.{200}){50}"),
    "ambiguous": StructuredOutputsParams(grammar='start: e\ne: e e | "a" | "a" e | e "a"'),
}


def test_perf_009_hostile_forms_are_answered_and_plain_streams_go_on() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(["a"] * 60)
        plain = [asyncio.create_task(collect(scripted, None)) for _ in range(8)]
        hostile = [collect(scripted, form, max_tokens=30) for form in HOSTILE.values()]
        results = await asyncio.gather(*hostile, return_exceptions=True)
        for name, result in zip(HOSTILE, results, strict=True):
            if isinstance(result, BaseException):
                assert isinstance(result, StructuredOutputError | QueueFullError), (name, result)
            else:
                assert result[-1].finish_reason in (FinishReason.STOP, FinishReason.LENGTH), name
        assert [text_of(await one) for one in plain] == ["a" * 60] * 8

    scripted_run(test)


def test_ignore_eos_and_a_form_exclude_each_other() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        with pytest.raises(InvalidRequestError) as refusal:
            await collect(scripted, StructuredOutputsParams(regex="a"), ignore_eos=True)
        assert refusal.value.param == "ignore_eos"

    scripted_run(test)


def test_the_second_use_of_a_form_needs_no_compilation() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        for _ in range(3):
            await collect(scripted, StructuredOutputsParams(choice=["yes", "no"]))
        stats = scripted.engine.stats().compiler
        assert (stats.num_compiles, stats.num_cache_hits) == (1, 2)

    scripted_run(test)


def stop_the_compiler(scripted: ScriptedEngine) -> None:
    """From now on no answer comes from the compile process, as if a form took for ever."""

    async def never(job: object) -> None:
        await asyncio.Event().wait()

    scripted.engine._forms.compiler._answer = never  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize("how", ["abort", "leave", "end_all", "shutdown"])
def test_a_call_may_end_while_its_form_is_compiled(how: str) -> None:
    async def test(scripted: ScriptedEngine) -> None:
        stop_the_compiler(scripted)
        form = StructuredOutputsParams(regex="a+")
        call = asyncio.create_task(collect(scripted, form, request_id="r"))
        await wait_until(lambda: bool(scripted.engine._forms.compiler._running))
        if how == "abort":
            assert await scripted.engine.abort("r")
            events = await call
            assert [event.finish_reason for event in events] == [FinishReason.ABORT]
        elif how == "leave":
            call.cancel()
            await asyncio.wait({call})
        elif how == "end_all":
            await scripted.engine.end_all(EngineDeadError("gone"))
            with pytest.raises(EngineDeadError, match="gone"):
                await call
        else:
            await scripted.engine.shutdown()
            with pytest.raises(EngineDeadError):
                await call
        assert not scripted.core.has_work
        await wait_until(lambda: not scripted.engine._forms.compiler._running)

    scripted_run(test)


@pytest.mark.parametrize(
    ("timeouts", "param"),
    [
        (Timeouts(total_s=0.05), "timeout"),
        (Timeouts(queue_s=0.05, first_token_s=50.0, total_s=60.0), "timeout.queue"),
        (Timeouts(first_token_s=0.05, total_s=60.0), "timeout.first_token"),
    ],
)
def test_a_deadline_holds_while_a_form_is_compiled(timeouts: Timeouts, param: str) -> None:
    async def test(scripted: ScriptedEngine) -> None:
        stop_the_compiler(scripted)
        params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a+"))
        with pytest.raises(DeadlineError, match=f"{param} of 0.05 s") as caught:
            async for _ in scripted.engine.generate([65], params, timeout_s=timeouts):
                pass
        assert caught.value.param == param
        await wait_until(lambda: not scripted.engine._forms.compiler._running)

    scripted_run(test)


@pytest.mark.parametrize("num_good", [1, 2])
def test_after_the_first_token_a_form_that_fails_ends_its_choice_only(num_good: int) -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(["a"] * 4 + ["b"])
        form = StructuredOutputsParams(regex="a+b")
        prior = [*[[ord("a")]] * num_good, [ord("x")]]
        events = await collect(scripted, form, n=num_good + 1, seed=1, output_token_ids=prior)
        last = {event.index: event for event in events if event.finish_reason is not None}
        assert last[num_good].finish_reason is FinishReason.ERROR
        assert last[num_good].error_code == StructuredOutputError.code
        assert "does not allow" in last[num_good].error_message
        for index in range(num_good):
            assert last[index].finish_reason is FinishReason.STOP
            assert text_of(events, index) == "aaab"
        finished = scripted.engine.stats().num_finished
        assert (finished["error"], finished["stop"]) == (1, num_good)

    scripted_run(test)


def test_before_the_first_token_a_form_that_fails_is_a_refusal() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        scripted.say(["a", "b"])
        form = StructuredOutputsParams(regex="a+b")
        with pytest.raises(StructuredOutputError, match="does not allow"):
            await collect(scripted, form, n=2, seed=1, output_token_ids=[[ord("x")], [ord("a")]])
        assert sum(scripted.engine.stats().num_finished.values()) == 1  # the other one, as aborted

    scripted_run(test)


def test_an_id_is_taken_while_its_form_is_compiled() -> None:
    async def test(scripted: ScriptedEngine) -> None:
        stop_the_compiler(scripted)
        form = StructuredOutputsParams(regex="a+")
        call = asyncio.create_task(collect(scripted, form, request_id="r"))
        await wait_until(lambda: bool(scripted.engine._forms.compiler._running))
        with pytest.raises(InvalidRequestError, match="still running"):
            await collect(scripted, None, request_id="r")
        call.cancel()
        await asyncio.wait({call})

    scripted_run(test)
