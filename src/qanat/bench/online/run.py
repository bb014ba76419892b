"""A run against a server from its preparation to the result."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from qanat.bench.client.client import Client
from qanat.bench.client.load import Load, LoadRecord, Planned
from qanat.bench.client.recording import Store
from qanat.bench.online.answer import Answer, read_answer
from qanat.bench.online.bodies import Api
from qanat.bench.online.conversations import Conversations
from qanat.bench.online.figures import Outcome, details, latencies, own_figures, totals
from qanat.bench.online.preparation import Prepared, prepare, profile_request, run_apart
from qanat.bench.online.prompts.make import make_prompts
from qanat.bench.online.prompts.prompt import Dataset, Made, Prompt
from qanat.bench.online.sampling import MetricsSampler, own_client
from qanat.bench.online.server_metrics import ServerMetrics, read_metrics
from qanat.bench.online.target import Target
from qanat.bench.online.verdict import WORDS, Finding, Run, grade_of, judge
from qanat.bench.online.wish import ServeWish
from qanat.core.errors import ConfigError
from qanat.core.open_files import allow_open_files

PROGRESS_S = 0.5
PROFILE_TIMEOUT_S = 600.0
"""Writing a profile takes a while."""
Progress = Callable[[Load, int, float | None], None]
"""Called now and then with the run, the number of its requests, and the tokens a second that the server tells."""


@dataclass(frozen=True)
class ServeResult:
    """What a run found.

    Attributes:
        result: for JSON.
        findings: on its validity, the worst first.
        outcome: what it is made of.
    """

    result: dict[str, Any]
    findings: Sequence[Finding]
    outcome: Outcome


async def run_serve(wish: ServeWish, tell: Callable[[str], None], progress: Progress | None) -> ServeResult:
    """Measures a server.

    Args:
        wish: what and how.
        tell: takes a line for the user.
        progress: see `Progress`.

    Raises:
        ConfigError: the wish contradicts itself, or a file is of no use.
    """
    allow_open_files(min(wish.dataset.count, wish.max_concurrency or wish.dataset.count) + 256)
    store = Store(wish.budget_bytes)
    client = Client(wish.target.address, wish.tls, store, wish.timeout_s)
    try:
        prepared = await prepare(wish, client, store)
        made = await _prompts(wish, prepared)
        for note in (*prepared.notes, *made.notes):
            tell(note)
        if prepared.is_hopeless:
            return _nothing_sent(wish, prepared, made, tell)
        return await _measure(wish, client, store, prepared, made, tell, progress)
    finally:
        client.close()
        store.close()


async def _prompts(wish: ServeWish, prepared: Prepared) -> Made:
    """The requests of the run.

    Raises:
        ConfigError: conversations and an API without them.
    """
    dataset = wish.dataset
    takes_ids = not prepared.api.is_chat
    if dataset.name == "multi_turn" and takes_ids:
        raise ConfigError(
            "--dataset-name multi_turn is a conversation: --backend openai-chat.", param="--dataset-name"
        )
    made = await make_prompts(dataset, prepared.vocabulary, prepared.tokenize, takes_ids=takes_ids)
    if not takes_ids and not prepared.vocabulary.is_exact and dataset.name not in ("sharegpt", "custom"):
        note = "prompts have about as many tokens as were asked for: there is no tokenizer to ask for words of one"
        made = replace(made, notes=(*made.notes, note))
    return made


async def _measure(
    wish: ServeWish,
    client: Client,
    store: Store,
    prepared: Prepared,
    made: Made,
    tell: Callable[[str], None],
    progress: Progress | None,
) -> ServeResult:
    prompts = made.prompts
    api, target = prepared.api, wish.target
    await _warm_up(wish, client, store, prepared, prompts)
    plan = _plan(wish, api, prompts)
    follow = None
    if any(prompt.turns for prompt in prompts):
        follow = Conversations(prompts, api, target, store, wish.turn_delay_s, wish.request_id_prefix).follow
    load = Load(
        client,
        max_concurrency=wish.max_concurrency,
        is_closed_loop=wish.arrivals.is_at_once and not _has_own_times(wish, prompts),
        follow=follow,
    )
    await _profile(wish, client, "start", tell)
    before = await read_metrics(client, target)
    readings = own_client(target, wish.tls)
    sampler = None
    if before is not None and wish.metrics_interval_s > 0:
        sampler = MetricsSampler(readings, target, wish.metrics_interval_s)
    try:
        record = await _run(load, plan, progress, sampler)
    finally:
        readings.close()
    after = await read_metrics(client, target)
    await _profile(wish, client, "stop", tell)
    server = ServerMetrics(before, after) if before is not None and after is not None else None
    timeline = None
    if sampler is not None and before is not None:
        timeline = sampler.timeline(record.start_ns, record.end_ns, before, after)
    answers = _read(record, store, target, has_text=wish.keeps_texts)
    outcome = Outcome(
        load=record,
        answers=answers,
        wanted_input_lens={number: prompt.input_len for number, prompt in enumerate(prompts)},
        server=server,
        timeline=timeline,
        facts=_facts(wish, prepared),
        notes=(*prepared.notes, *made.notes),
        num_file_bytes=store.num_file_bytes,
    )
    num_turns = sum(1 + len(prompt.turns) for prompt in prompts)
    return _judged(wish, outcome, made, num_turns, rate=_rate(wish, prompts))


async def _warm_up(
    wish: ServeWish, client: Client, store: Store, prepared: Prepared, prompts: Sequence[Prompt]
) -> None:
    """Sends requests of the run's size with other prompts, which no prefix cache can give back later."""
    if not wish.num_warmups:
        return
    like = prompts[0]
    dataset = Dataset(
        count=wish.num_warmups,
        input_len=like.input_len or len(like.text.split()),
        output_len=like.output_len,
        run_id=f"warm-up {time.time_ns()}",
    )
    made = await make_prompts(dataset, prepared.vocabulary, None, takes_ids=not prepared.api.is_chat)
    requests = [wish.target.post(prepared.api.body(prompt)) for prompt in made.prompts]
    await run_apart(client, store, requests, wish.max_concurrency or len(requests))


async def _run(
    load: Load, plan: Sequence[Planned], progress: Progress | None, sampler: MetricsSampler | None
) -> LoadRecord:
    async def show() -> None:
        assert progress is not None
        while True:
            await asyncio.sleep(PROGRESS_S)
            progress(load, len(plan), sampler.output_rate if sampler is not None else None)

    beside = [asyncio.create_task(show())] if progress is not None else []
    if sampler is not None:
        beside.append(asyncio.create_task(sampler.run()))
    try:
        return await load.run(plan)
    finally:
        for task in beside:
            task.cancel()


def _plan(wish: ServeWish, api: Api, prompts: Sequence[Prompt]) -> list[Planned]:
    """All requests, written, with the times at which they are sent."""
    times = wish.arrivals.times_s(len(prompts), wish.dataset.seed)
    if _has_own_times(wish, prompts):
        times = [prompt.at_s or 0.0 for prompt in prompts]
    return [
        Planned(
            number, at_s, wish.target.post(api.body(prompt), request_id=f"{wish.request_id_prefix}{number}")
        )
        for number, (at_s, prompt) in enumerate(zip(times, prompts, strict=True))
    ]


def _has_own_times(wish: ServeWish, prompts: Sequence[Prompt]) -> bool:
    return wish.keeps_trace_times and any(prompt.at_s is not None for prompt in prompts)


def _rate(wish: ServeWish, prompts: Sequence[Prompt]) -> float:
    """Requests a second that the schedule asks for; infinite without one."""
    if _has_own_times(wish, prompts):
        length_s = max(prompt.at_s or 0.0 for prompt in prompts)
        return len(prompts) / length_s if length_s else math.inf
    if wish.arrivals.ramp:
        return (wish.arrivals.ramp_start + wish.arrivals.ramp_end) / 2
    return wish.arrivals.rate


def _read(record: LoadRecord, store: Store, target: Target, *, has_text: bool) -> list[Answer]:
    """Reads every recording, and gives its bytes back at once."""
    answers = []
    cpu_s = time.process_time()
    record.num_pieces = sum(len(recording.times_ns) for recording in record.recordings)
    for recording in record.recordings:
        answer = read_answer(recording, store.read(recording), record.start_ns, has_text=has_text)
        answer.message = target.hide(answer.message)
        answers.append(answer)
        recording.forget()
    record.reading_cpu_s = time.process_time() - cpu_s
    return sorted(answers, key=lambda answer: answer.index)


async def _profile(wish: ServeWish, client: Client, action: str, tell: Callable[[str], None]) -> None:
    if not wish.is_profiled:
        return
    reply = await client.ask(profile_request(wish.target, action), PROFILE_TIMEOUT_S)
    if not reply.is_ok:
        said = reply.message or reply.body[:200].decode(errors="replace")
        tell(f"--profile: the server did not {action} a profile (status {reply.status}): {said}")


def _nothing_sent(
    wish: ServeWish, prepared: Prepared, made: Made, tell: Callable[[str], None]
) -> ServeResult:
    """The result where the probe showed that every request would fail."""
    note = f"no request was sent, as the first of all failed ({prepared.probe.failure}): "
    note += wish.target.hide(prepared.probe.message)
    tell(note)
    outcome = Outcome(LoadRecord(), [], {}, facts=_facts(wish, prepared), notes=(note,))
    return _judged(wish, outcome, made, wish.dataset.count, rate=math.inf)


def _judged(wish: ServeWish, outcome: Outcome, made: Made, num_planned: int, rate: float) -> ServeResult:
    wanted = wish.wanted
    speculation = outcome.server.speculation() if outcome.server is not None else {}
    run = Run(
        load=outcome.load,
        answers=outcome.answers,
        num_planned=num_planned,
        rate=rate,
        max_concurrency=wish.max_concurrency,
        percentiles=wanted.percentiles,
        shares_prefixes=made.shares_prefixes or wish.dataset.name == "multi_turn",
        cached_share=outcome.cached_share,
        has_speculation=bool(speculation),
    )
    findings = judge(run)
    result = {
        **outcome.facts,
        **totals(outcome, wanted),
        **latencies(outcome, wanted, wanted.latency_from),
        **speculation,
        **(details(outcome, wanted.latency_from) if wish.keeps_texts else {}),
    }
    result["qanat"] = {
        "verdict": WORDS[grade_of(findings)],
        "findings": [
            {"grade": finding.grade.name.lower(), "code": finding.code, "text": finding.text}
            for finding in findings
        ],
        **own_figures(outcome, wanted),
    }
    return ServeResult(result, findings, outcome)


def _facts(wish: ServeWish, prepared: Prepared) -> dict[str, Any]:
    arrivals = wish.arrivals
    facts: dict[str, Any] = {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": wish.backend,
        "backend": wish.backend,
        "label": None,
        "model_id": wish.model_id or prepared.api.model,
        "tokenizer_id": wish.tokenizer or wish.model_id or prepared.api.model,
        "num_prompts": wish.dataset.count,
        "request_rate": "inf" if math.isinf(arrivals.rate) else arrivals.rate,
        "burstiness": "inf" if math.isinf(arrivals.burstiness) else arrivals.burstiness,
        "max_concurrency": wish.max_concurrency or None,
    }
    if arrivals.ramp:
        facts |= {
            "ramp_up_strategy": arrivals.ramp,
            "ramp_up_start_rps": arrivals.ramp_start,
            "ramp_up_end_rps": arrivals.ramp_end,
        }
    return facts
