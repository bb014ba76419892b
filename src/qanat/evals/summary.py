"""Scores of a run and of two runs beside each other, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.evals.divergence import divergence
from qanat.evals.intervals import deviations_of, wilson
from qanat.evals.paired import compare
from qanat.evals.record import Result

OVERALL = "overall"


@dataclass(frozen=True)
class Pairs:
    """Two runs' results of the same items.

    Attributes:
        both: (baseline, this run), answers on both sides.
        num_unanswered: items left out as one side has no answer.
        num_unmatched: items left out as the baseline did not ask them, or asked something else.
    """

    both: tuple[tuple[Result, Result], ...]
    num_unanswered: int
    num_unmatched: int


def score(results: Sequence[Result], confidence: float) -> dict[str, Any]:
    """Of some results. Answers that were cut count as not right; items without an answer do not count.

    Returns:
        items, right, wrong, cut, errors, empty, unextracted (wrong as nothing was found in the answer), percent and
        interval (percent; None without answers), mean_completion_tokens where the server counts them.
    """
    counts = {
        name: sum(one.verdict == name for one in results) for name in ("right", "wrong", "cut", "error")
    }
    answered = len(results) - counts["error"]
    low, high = wilson(counts["right"], answered, deviations_of(confidence))
    tokens = [
        count
        for one in results
        if isinstance(count := one.usage.get("completion_tokens"), int) and one.verdict != "error"
    ]
    return {
        "items": len(results),
        "right": counts["right"],
        "wrong": counts["wrong"],
        "cut": counts["cut"],
        "errors": counts["error"],
        "empty": sum(one.is_empty for one in results),
        "unextracted": sum(one.verdict == "wrong" and one.extraction is None for one in results),
        "percent": round(100 * counts["right"] / answered, 2) if answered else None,
        "interval": [round(100 * low, 2), round(100 * high, 2)] if answered else None,
        "mean_completion_tokens": round(sum(tokens) / len(tokens), 1) if tokens else None,
    }


def scores(results: Sequence[Result], confidence: float) -> dict[str, dict[str, Any]]:
    """Of each task, in the order in which they come, and of all together under `OVERALL`."""
    tasks: dict[str, list[Result]] = {}
    for one in results:
        tasks.setdefault(one.task, []).append(one)
    table = {task: score(of_task, confidence) for task, of_task in tasks.items()}
    return {**table, OVERALL: score(results, confidence)}


def match(baseline: Mapping[tuple[str, str], Result], results: Iterable[Result]) -> Pairs:
    """The items that both runs answered; those of one name that ask something else are not the same."""
    both, unanswered, unmatched = [], 0, 0
    for after in results:
        before = baseline.get(after.key)
        if before is None or before.digest != after.digest:
            unmatched += 1
        elif "error" in (before.verdict, after.verdict):
            unanswered += 1
        else:
            both.append((before, after))
    return Pairs(tuple(both), unanswered, unmatched)


def comparison(pairs: Pairs, confidence: float) -> dict[str, Any]:
    """What the paired test says.

    Returns:
        items, right_before, right_after, lost and gained (items), loss_points with its upper bound, p_value of the
        exact McNemar test, is_real (the p value is below 1 - confidence), lost_items and gained_items by name,
        divergence (None where there are no log-probabilities), and what was left out.
    """
    deviations = deviations_of(confidence)
    flags = [(before.verdict == "right", after.verdict == "right") for before, after in pairs.both]
    result = compare([before for before, _ in flags], [after for _, after in flags])
    apart = divergence(pairs.both)
    return {
        "items": result.num_items,
        "right_before": result.num_right_before,
        "right_after": result.num_right_after,
        "lost": result.num_lost,
        "gained": result.num_gained,
        "loss_points": round(result.loss_points, 3),
        "loss_bound_points": round(result.loss_bound_points_at(deviations), 3),
        "p_value": result.chance,
        "is_real": result.chance < 1 - confidence,
        "confidence": confidence,
        "num_same_answers": sum(before.answer == after.answer for before, after in pairs.both),
        "lost_items": [
            list(after.key)
            for (_, after), flag in zip(pairs.both, flags, strict=True)
            if flag == (True, False)
        ],
        "gained_items": [
            list(after.key)
            for (_, after), flag in zip(pairs.both, flags, strict=True)
            if flag == (False, True)
        ],
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
