"""Whether requests wait, where the first token loses its time, and whether scheduling overlaps with computing."""

from __future__ import annotations

from qanat.deploy.diagnose.evidence import Evidence, threshold
from qanat.deploy.diagnose.verdict import Answer, Case, Comparison, Verdict, number, percent, workload
from qanat.deploy.knowledge.versions import must_parse

ASYNC_DEFAULT_SINCE = must_parse("0.17.0rc1")
"""From here on asynchronous scheduling is on where nothing speaks against it."""
ASYNC_METHODS = ("mtp", "eagle", "draft_model", "ngram_gpu")
"""Speculative methods, by a part of their names, that go with asynchronous scheduling."""


def queueing(evidence: Evidence) -> Verdict:
    """Whether requests wait for a place in the batch."""
    case = Case("queueing", "Do requests wait for a place?")
    running, waiting = evidence.gauge("running"), evidence.gauge("waiting")
    if running is None or waiting is None:
        return case.unknown("num_requests_running and num_requests_waiting")
    case.saw("requests running", running)
    case.saw("requests waiting", waiting)
    usage, seqs = evidence.gauge("cache_usage"), evidence.max_num_seqs
    case.saw("share of the cache in use", percent(usage) if usage is not None else None)
    engines = len(evidence.metrics.gauges("running")) if evidence.metrics else 1
    places = seqs * engines if seqs is not None else None
    case.saw("places (--max-num-seqs over all engines)", float(places) if places is not None else None)
    if waiting < 1:
        return case.says(Answer.FINE, "None waits at this moment.")
    if usage is not None and usage >= threshold("pool_full"):
        return case.says(
            Answer.CAUSE, "They wait because the cache is full: see the question about its size."
        )
    if places is None or seqs is None:
        return case.unknown()
    if running >= threshold("batch_full") * places:
        return case.says(
            Answer.CAUSE,
            f"All {places:,} places are taken while {number(waiting)} requests wait and the cache has room. A higher "
            "--max-num-seqs lets more run; capture sizes have to grow with it.",
            Comparison(
                f"--max-num-seqs {seqs}",
                f"--max-num-seqs {2 * seqs}",
                workload(evidence, concurrency=2 * places),
                "TTFT, TPOT and output tokens per second",
            ),
        )
    return case.says(
        Answer.CAUSE,
        "Places and cache are free and requests wait all the same: prompts come faster than they are computed. "
        "A larger --max-num-batched-tokens computes more of them in a step, at the price of longer steps.",
        Comparison(
            f"--max-num-batched-tokens {evidence.view.max_num_batched_tokens if evidence.view else 'as it is'}",
            "twice as many",
            workload(evidence),
            "TTFT and P99 of TPOT",
        ),
    )


def first_token(evidence: Evidence) -> Verdict:
    """Where the time to the first token goes."""
    case = Case("first-token", "What does the first token wait for?")
    metrics = evidence.metrics
    ttft = metrics.histogram("ttft") if metrics else None
    queue = metrics.histogram("queue_time") if metrics else None
    prefill = metrics.histogram("prefill_time") if metrics else None
    if ttft is None or ttft.mean is None:
        return case.unknown("time_to_first_token_seconds")
    case.saw("seconds to the first token, mean", ttft.mean)
    case.saw("P99", ttft.quantile(0.99))
    case.saw("seconds in the queue, mean", queue.mean if queue else None)
    case.saw("seconds of computing the prompt, mean", prefill.mean if prefill else None)
    if queue is None or queue.mean is None:
        return case.unknown()
    share = queue.mean / ttft.mean if ttft.mean > 0 else 0.0
    case.saw("share of waiting", percent(min(1.0, share)))
    if share > threshold("queue_share"):
        return case.says(
            Answer.CAUSE,
            f"{percent(min(1.0, share))} of it is waiting for a place, not computing. Fewer requests at once, or more "
            "places, shorten it; faster prompts do not.",
            Comparison(
                "this load",
                "half as many requests at once",
                workload(evidence, concurrency=max(1, round((evidence.gauge("running") or 16) / 2))),
                "TTFT and output tokens per second",
            ),
        )
    return case.says(Answer.FINE, "Waiting is a small part of it; the rest is computing the prompt.")


def asynchronous(evidence: Evidence) -> Verdict:
    """Whether the next step is prepared while the current one runs."""
    case = Case("async-scheduling", "Is asynchronous scheduling on?")
    view = evidence.view
    compare = Comparison(
        "--async-scheduling", "--no-async-scheduling", workload(evidence), "TPOT and output tokens per second"
    )
    if evidence.is_async is not None:
        case.saw("the log says", "enabled" if evidence.is_async else "disabled")
        if evidence.is_async:
            return case.says(Answer.FINE, "It is on.", compare)
    if view is None:
        return case.unknown("settings (a log or a plan tells)")
    given = view.switch("--async-scheduling")
    executor, method = view.text("--distributed-executor-backend"), view.method
    case.saw("--async-scheduling", "not given" if given is None else str(given))
    case.saw("executor", executor or "default")
    case.saw("speculative method", method or "none")
    if given is False:
        return case.says(Answer.CAUSE, "It is switched off.", compare)
    is_fitting = method is None or any(one in method for one in ASYNC_METHODS)
    if executor == "ray" or not is_fitting:
        what = "the Ray executor" if executor == "ray" else f"the speculative method {method}"
        told = "the start is refused" if given else "it falls back without a word"
        return case.says(Answer.CAUSE, f"It does not go with {what}; {told}.", compare)
    if given or view.version >= ASYNC_DEFAULT_SINCE:
        if evidence.is_async is False:
            return case.says(
                Answer.CAUSE, "The log says that it is off; a setting that excludes it must be on.", compare
            )
        return case.says(Answer.FINE, "It is on." if given else "It is on by default.", compare)
    return case.says(
        Answer.CAUSE,
        f"Before 0.17 it is off unless --async-scheduling is given ({view.version} runs).",
        compare,
    )
