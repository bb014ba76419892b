"""What `qanat eval` shows: a bar while it asks, and the scores at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.progress import MofNCompleteColumn

from qanat.core.terminal_bar import TerminalBar

if TYPE_CHECKING:
    from qanat.evals.record import Result

MAX_ERRORS_SHOWN = 5
MAX_NOTE_CHARS = 160


class EvalBar(TerminalBar):
    """Items that have an answer.

    Args:
        title: the server.
        total: items of the run.
        is_shown: False shows nothing.
    """

    def __init__(self, title: str, total: int, *, is_shown: bool) -> None:
        super().__init__(title, MofNCompleteColumn(), is_shown=is_shown)
        self._title = title
        self._counts: Counter[str] = Counter()
        self._progress.update(self._task, total=total)

    def show(self, result: Result) -> None:
        """One more."""
        self._counts[result.verdict] += 1
        answered = self._counts.total() - self._counts["error"]
        share = f", {self._counts['right'] / answered:.1%} right" if answered else ""
        self._progress.update(self._task, advance=1, description=self._title + share)


def score_lines(
    title: str, results: Sequence[Result], table: Mapping[str, Mapping[str, Any]], confidence: float
) -> Iterator[str]:
    """The scores of one server, and what must be known to believe them."""
    width = max(7, *(len(task) for task in table))
    level = f"{100 * confidence:g} % interval"
    yield title
    overall = table["overall"]
    is_sampled = overall["samples"] > 1
    passes = overall.get("pass_at", {})
    answers = f" {'answers':>7}" if is_sampled else ""
    shares = "".join(f" {what:>8}  {level:14}" for what in ("score", *(f"pass@{k}" for k in passes)))
    yield (
        f"{'task':{width}} {'items':>6}{answers} {'right':>6} {'wrong':>6} {'cut':>5} {'errors':>7}{shares}"
    ).rstrip()
    rows = list(table.items())
    for task, row in rows[-1:] if len(rows) == 2 else rows:
        name = rows[0][0] if len(rows) == 2 else task
        asked = sum(row[what] for what in ("right", "wrong", "cut", "errors"))
        answers = f" {asked:7}" if is_sampled else ""
        counts = f"{row['right']:6} {row['wrong']:6} {row['cut']:5} {row['errors']:7}"
        shares = " ".join(map(_share, (row, *row.get("pass_at", {}).values())))
        yield f"{name:{width}} {row['items']:6}{answers} {counts} {shares}".rstrip()
    if overall["mean_completion_tokens"] is not None:
        yield f"{overall['mean_completion_tokens']:g} tokens an answer"
    yield from _remarks(results, overall)


def _share(row: Mapping[str, Any]) -> str:
    """A share with its interval, as wide as their heads."""
    shown = "n/a" if row["percent"] is None else f"{row['percent']:.1f} %"
    interval = f"{row['interval'][0]:.1f} to {row['interval'][1]:.1f}" if row["interval"] else ""
    return f"{shown:>8}  {interval:14}"


def _remarks(results: Sequence[Result], overall: Mapping[str, Any]) -> Iterator[str]:
    if cut := overall["cut"]:
        yield f"cut: {cut} answers reached their longest length; they count as not right. --max-tokens raises it."
    if empty := overall["empty"]:
        yield f"empty: {empty} answers had no text outside of the thinking."
    if unextracted := overall["unextracted"]:
        yield f"wrong without a result: in {unextracted} answers nothing was found to compare."
    if errors := overall["errors"]:
        what = "items have no answer" if overall["samples"] == 1 else "answers did not come"
        yield f"errors: {errors} {what} and are in no score:"
        notes = Counter(one.note[:MAX_NOTE_CHARS] for one in results if one.verdict == "error")
        for note, count in notes.most_common(MAX_ERRORS_SHOWN):
            yield f"  {count} x {note}"
    for k, row in overall.get("pass_at", {}).items():
        if row["left_out"]:
            yield f"pass@{k}: {row['left_out']} items have fewer than {k} answers and are left out."
    if open_layers := sorted({layer for one in results for layer in one.open_layers}):
        yield f"programs ran without a lock on: {', '.join(open_layers)} (this kernel has none to offer)"


def comparison_lines(name: str, compared: Mapping[str, Any]) -> Iterator[str]:
    """What became of the right answers, and whether it is more than chance."""
    items, level = compared["items"], f"{100 * compared['confidence']:g} %"
    answers = items * compared["samples"]
    is_sampled = compared["samples"] > 1
    times = f", {compared['samples']} times each" if is_sampled else ""
    yield f"beside {name}: {items} items that both answered{times}"
    for what, word in (("unanswered", "have no answer on one side"), ("unmatched", "are not the baseline's")):
        if compared[what]:
            yield f"  {compared[what]} items {word}, and are left out"
    before, after = 100 * compared["right_before"] / answers, 100 * compared["right_after"] / answers
    lost, gained = ("items got worse", "better") if is_sampled else ("answers lost", "gained")
    yield f"right: {before:.2f} % -> {after:.2f} %; {compared['lost']} {lost}, {compared['gained']} {gained}"
    yield f"loss: {compared['loss_points']:g} points, at most {compared['loss_bound_points']:g} ({level})"
    test = "paired permutation test over items" if is_sampled else "exact McNemar test"
    chance = f"p = {compared['p_value']:.3g}, {test}"
    if compared["is_real"]:
        better = "the baseline is better" if compared["loss_points"] > 0 else "it is better than the baseline"
        yield f"the difference is real at the {level} level: {better} ({chance})"
    else:
        yield f"no difference that chance would not make too ({chance}, {level} level)"
    if kl := compared["kl"]:
        same = kl["same_first_token"] / kl["places"]
        yield (
            f"first tokens: KL from the baseline at least {kl['mean_nats']:.3g} nats on average, {kl['max_nats']:.3g} "
            f"at most, over {kl['places']} places; the likeliest token is the same at {same:.1%}"
        )
    yield f"the same text in {compared['num_same_answers']} of {answers} answers"
    if "gate_points" in compared:
        hint = "; the loss itself lies within, more items may show it" if _is_unclear(compared) else ""
        yield f"gate of {compared['gate_points']:g} points: {'met' if compared['is_met'] else 'MISSED' + hint}"


def _is_unclear(compared: Mapping[str, Any]) -> bool:
    return bool(compared["loss_points"] <= compared["gate_points"])
