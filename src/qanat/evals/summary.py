"""Scores of a run and of two runs beside each other, as data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.evals.divergence import divergence
from qanat.evals.intervals import deviations_of, interval_of_mean
from qanat.evals.paired import compare
from qanat.evals.passes import pass_row
from qanat.evals.record import Draw, Result

OVERALL = "overall"


@dataclass(frozen=True)
class Pairs:
    """Two runs' results of the same items.

    Attributes:
        both: (baseline, this run), answers on both sides; those to one item stand together.
        num_unanswered: items left out as one side has no answer.
        num_unmatched: items left out as the baseline did not ask them, or asked something else.
    """

    both: tuple[tuple[Result, Result], ...]
    num_unanswered: int
    num_unmatched: int


def score(results: Sequence[Result], confidence: float, pass_at: Sequence[int] = ()) -> dict[str, Any]:
    """Of some results. Answers that were cut count as not right; questions without an answer do not count.

    Returns:
        items, samples (answers asked for to each); of answers: right, wrong, cut, errors, empty, unextracted (wrong as
        nothing was found in the answer); percent and interval over items (percent; None without answers),
        mean_completion_tokens where the server counts them, and pass_at (see `pass_row`) where it is asked for.
    """
    counts = {
        name: sum(one.verdict == name for one in results) for name in ("right", "wrong", "cut", "error")
    }
    items = by_item(results)
    tries = [_tries(samples) for samples in items.values()]
    shares = [right / answers for answers, right in tries if answers]
    deviations = deviations_of(confidence)
    low, high = interval_of_mean(
        shares, min((answers for answers, _ in tries if answers), default=1), deviations
    )
    tokens = [
        count
        for one in results
        if isinstance(count := one.usage.get("completion_tokens"), int) and one.verdict != "error"
    ]
    return {
        "items": len(items),
        "samples": max(map(len, items.values()), default=1),
        "right": counts["right"],
        "wrong": counts["wrong"],
        "cut": counts["cut"],
        "errors": counts["error"],
        "empty": sum(one.is_empty for one in results),
        "unextracted": sum(one.verdict == "wrong" and one.extraction is None for one in results),
        "percent": round(100 * math.fsum(shares) / len(shares), 2) if shares else None,
        "interval": [round(100 * low, 2), round(100 * high, 2)] if shares else None,
        "mean_completion_tokens": round(sum(tokens) / len(tokens), 1) if tokens else None,
        **({"pass_at": pass_row(tries, pass_at, deviations)} if pass_at else {}),
    }


def by_item(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    """The answers to each item, in the order in which they come."""
    items: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        items.setdefault(one.key, []).append(one)
    return items


def _tries(samples: Sequence[Result]) -> tuple[int, int]:
    """Answers to an item, and how many of them are right."""
    answers = sum(one.verdict != "error" for one in samples)
    return answers, sum(one.verdict == "right" for one in samples)


def scores(
    results: Sequence[Result], confidence: float, pass_at: Sequence[int] = ()
) -> dict[str, dict[str, Any]]:
    """Of each task, in the order in which they come, and of all together under `OVERALL`."""
    tasks: dict[str, list[Result]] = {}
    for one in results:
        tasks.setdefault(one.task, []).append(one)
    table = {task: score(of_task, confidence, pass_at) for task, of_task in tasks.items()}
    return {**table, OVERALL: score(results, confidence, pass_at)}


def match(baseline: Mapping[Draw, Result], results: Iterable[Result]) -> Pairs:
    """The items that both runs answered each time; those of one name that ask something else are not the same."""
    both: list[tuple[Result, Result]] = []
    unanswered = unmatched = 0
    for samples in by_item(results).values():
        pairs = [
            (before, after)
            for after in samples
            if (before := baseline.get(after.draw)) is not None and before.digest == after.digest
        ]
        if len(pairs) < len(samples):
            unmatched += 1
        elif any("error" in (before.verdict, after.verdict) for before, after in pairs):
            unanswered += 1
        else:
            both += pairs
    return Pairs(tuple(both), unanswered, unmatched)


def comparison(pairs: Pairs, confidence: float) -> dict[str, Any]:
    """What the paired test says.

    Returns:
        items, samples (of each), right_before and right_after (answers), lost and gained (items with fewer and with
        more right answers), loss_points with its upper bound, p_value of the paired test, is_real (the p value is
        below 1 - confidence), lost_items and gained_items by name, num_same_answers, kl (None where there are no
        log-probabilities), and what was left out.
    """
    deviations = deviations_of(confidence)
    before = by_item(before for before, _ in pairs.both)
    after = by_item(after for _, after in pairs.both)
    result = compare(
        [_tries(samples)[1] for samples in before.values()],
        [_tries(samples)[1] for samples in after.values()],
        num_samples=len(pairs.both) // len(after),
    )
    apart = divergence(pairs.both)
    return {
        "items": result.num_items,
        "samples": result.num_samples,
        "right_before": result.num_right_before,
        "right_after": result.num_right_after,
        "lost": result.num_lost,
        "gained": result.num_gained,
        "loss_points": round(result.loss_points, 3),
        "loss_bound_points": round(result.loss_bound_points_at(deviations), 3),
        "p_value": result.chance,
        "is_real": result.chance < 1 - confidence,
        "confidence": confidence,
        "num_same_answers": sum(one.answer == other.answer for one, other in pairs.both),
        "lost_items": [list(key) for key, fall in zip(after, result.falls, strict=True) if fall > 0],
        "gained_items": [list(key) for key, fall in zip(after, result.falls, strict=True) if fall < 0],
        "kl": apart
        and {
            "mean_nats": apart.mean_nats,
            "max_nats": apart.max_nats,
            "places": apart.num_places,
            "same_first_token": apart.num_same_first,
        },
        "unanswered": pairs.num_unanswered,
        "unmatched": pairs.num_unmatched,
    }
