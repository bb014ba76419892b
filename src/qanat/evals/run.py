"""Asks all items of a run, so many at a time, and judges the answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from qanat.evals.asking import AskSettings
from qanat.evals.item import EvalItem
from qanat.evals.judging import Judgement, judge
from qanat.evals.record import Record, Result
from qanat.evals.replies import Reply
from qanat.evals.sending import HopelessError, Unanswered

PROBE = EvalItem(task="", item_id="", check="choice", question="Which is it?", choices=("This", "That"))
"""Asked before anything else, where choices are scored."""


class Asking(Protocol):
    """Asks one server; `Asker` and `LikelihoodAsker` do."""

    settings: AskSettings

    def body(self, item: EvalItem, sample: int = 0) -> dict[str, Any]:
        """What is sent for an answer to an item."""
        ...

    async def ask(self, item: EvalItem, sample: int = 0) -> Reply:
        """The answer. Raises Unanswered and HopelessError."""
        ...


async def check_scoring(asker: Asking) -> None:
    """Asks for the scores of choices once.

    Raises:
        HopelessError: the server gives none; says what else can be done.
    """
    try:
        await asker.ask(PROBE)
    except (Unanswered, HopelessError) as error:
        is_letter = asker.settings.scoring == "letter"
        needed = (
            "log-probabilities of the 20 likeliest tokens"
            if is_letter
            else "/tokenize, and echo with logprobs"
        )
        other = (
            "answer judges by the answers' words" if is_letter else "letter asks for one token of each answer"
        )
        raise HopelessError(
            f"the server cannot score choices: {str(error).rstrip('.')}. --scoring {asker.settings.scoring} needs "
            f"{needed}, as Qanat and vLLM have; --scoring {other}."
        ) from None


async def run_items(
    items: Sequence[EvalItem],
    asker: Asking,
    *,
    concurrency: int,
    code_timeout_s: float,
    num_samples: int = 1,
    record: Record | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """What became of each answer, in the order of the items and, within an item, of its samples.

    Args:
        items: to ask.
        asker: of the server.
        concurrency: answers that are waited for at a time.
        code_timeout_s: for each program.
        num_samples: answers to each item.
        record: where results are kept, and found: what has an answer there is not asked again.
        on_result: called with each result as it comes, those of the record first.

    Raises:
        HopelessError: the server will answer none.
    """
    kept = record.results if record is not None else {}
    draws = [(item, sample) for item in items for sample in range(num_samples)]
    names = [(*item.key, sample) for item, sample in draws]
    done = {name: kept[name] for name in names if name in kept}
    for found in done.values():
        on_result(found)
    waiting = iter([draw for draw, name in zip(draws, names, strict=True) if name not in done])
    programs = asyncio.Semaphore(max(1, len(os.sched_getaffinity(0))))

    async def work() -> None:
        for item, sample in waiting:
            result = await _result(item, sample, asker, programs, code_timeout_s)
            if record is not None:
                record.add(result)
            done[result.draw] = result
            on_result(result)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [done[name] for name in names]


async def _result(
    item: EvalItem, sample: int, asker: Asking, programs: asyncio.Semaphore, code_timeout_s: float
) -> Result:
    body = asker.body(item, sample)
    prompt = body.get("messages", body.get("prompt"))
    expected, started = item.answers, time.monotonic()
    try:
        reply = await asker.ask(item, sample)
    except Unanswered as error:
        return Result(
            task=item.task,
            item_id=item.item_id,
            sample=sample,
            digest=item.digest(),
            verdict="error",
            expected=expected,
            prompt=prompt,
            note=str(error),
            duration_s=round(time.monotonic() - started, 3),
        )
    duration_s = round(time.monotonic() - started, 3)
    settings = asker.settings

    def judged() -> Judgement:
        stops = settings.stops_of(item)
        return judge(
            item,
            reply,
            stops=stops,
            is_chat=settings.is_chat,
            scoring=settings.scoring,
            code_timeout_s=code_timeout_s,
        )

    if item.code is None:
        judgement = judged()
    else:
        async with programs:
            judgement = await asyncio.to_thread(judged)
    return Result(
        task=item.task,
        item_id=item.item_id,
        sample=sample,
        digest=item.digest(),
        verdict=judgement.verdict,
        expected=expected,
        extraction=judgement.extraction,
        prompt=prompt,
        answer=reply.text,
        thinking=reply.thinking,
        tool_calls=reply.tool_calls,
        finish_reason=reply.finish_reason,
        usage=dict(reply.usage),
        note=judgement.note,
        open_layers=judgement.open_layers,
        tokens=reply.tokens,
        chances=reply.chances,
        scores=dict(reply.scores or {}),
        duration_s=duration_s,
    )
