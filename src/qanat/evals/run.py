"""Asks all items of a run, so many at a time, and judges the answers."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence

from qanat.evals.asking import Asker, Unanswered
from qanat.evals.item import EvalItem
from qanat.evals.judging import Judgement, judge
from qanat.evals.record import Record, Result


async def run_items(
    items: Sequence[EvalItem],
    asker: Asker,
    *,
    concurrency: int,
    code_timeout_s: float,
    record: Record | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """What became of each item, in the order of the items.

    Args:
        items: to ask.
        asker: of the server.
        concurrency: answers that are waited for at a time.
        code_timeout_s: for each program.
        record: where results are kept, and found: what has an answer there is not asked again.
        on_result: called with each result as it comes, those of the record first.

    Raises:
        HopelessError: the server will answer none.
    """
    kept = record.results if record is not None else {}
    done = {item.key: kept[item.key] for item in items if item.key in kept}
    for found in done.values():
        on_result(found)
    waiting = iter([item for item in items if item.key not in done])
    programs = asyncio.Semaphore(max(1, len(os.sched_getaffinity(0))))

    async def work() -> None:
        for item in waiting:
            result = await _result(item, asker, programs, code_timeout_s)
            if record is not None:
                record.add(result)
            done[item.key] = result
            on_result(result)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [done[item.key] for item in items]


async def _result(item: EvalItem, asker: Asker, programs: asyncio.Semaphore, code_timeout_s: float) -> Result:
    body = asker.body(item)
    prompt = body.get("messages", body.get("prompt"))
    expected, started = item.answers, time.monotonic()
    try:
        reply = await asker.ask(item)
    except Unanswered as error:
        return Result(
            task=item.task,
            item_id=item.item_id,
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
        return judge(item, reply, stops=stops, is_chat=settings.is_chat, code_timeout_s=code_timeout_s)

    if item.code is None:
        judgement = judged()
    else:
        async with programs:
            judgement = await asyncio.to_thread(judged)
    return Result(
        task=item.task,
        item_id=item.item_id,
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
        duration_s=duration_s,
    )
