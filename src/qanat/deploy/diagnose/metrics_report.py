"""Answers to questions of performance, as text for people and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qanat.deploy.diagnose.evidence import Evidence
from qanat.deploy.diagnose.verdict import Answer, Verdict, number

FORMAT = 1


def text_report(evidence: Evidence, verdicts: Sequence[Verdict]) -> str:
    """One paragraph for each question, causes first."""
    parts = ["\n".join(_head(evidence))]
    order = (Answer.CAUSE, Answer.UNKNOWN, Answer.FINE)
    load = ""
    for one in (one for answer in order for one in verdicts if one.answer is answer):
        parts.append("\n".join(_verdict(one, load)))
        load = one.comparison.workload if one.comparison else load
    counts = {answer: sum(one.answer is answer for one in verdicts) for answer in order}
    parts.append(", ".join(f"{answer.value}: {counts[answer]}" for answer in order))
    return "\n\n".join(part for part in parts if part)


def _head(evidence: Evidence) -> Iterator[str]:
    metrics = evidence.metrics
    if metrics is not None:
        yield f"Counters count {metrics.basis}."
        if metrics.before is not None and metrics.seconds:
            rates = [
                f"{number((metrics.counter(name) or 0) / metrics.seconds)} {what} per second"
                for name, what in (("prompt_tokens", "prompt tokens"), ("generation_tokens", "output tokens"))
            ]
            yield f"{', '.join(rates)}."
        if metrics.after.num_faults:
            yield f"{metrics.after.num_faults} lines could not be read, e.g. {metrics.after.faults[0]}"
    if evidence.view is not None:
        yield f"Settings are those of {evidence.settings_from}, for vllm-ascend {evidence.view.version}."
    elif metrics is not None:
        yield "No settings: name the server's log too, or its plan (--plan), for more answers."


def _verdict(verdict: Verdict, last_load: str) -> Iterator[str]:
    yield f"{verdict.title} [{verdict.answer.value}]"
    yield f"  {verdict.text}"
    if verdict.figures:
        yield "  figures: " + "; ".join(f"{name} {value}" for name, value in verdict.figures)
    if verdict.missing and verdict.answer is not Answer.UNKNOWN:
        yield f"  not known: {', '.join(verdict.missing)}"
    compare = verdict.comparison
    if compare is not None:
        yield f"  compare A: {compare.first}"
        yield f"          B: {compare.second}"
        yield f"       with: {'the same load' if compare.workload == last_load else compare.workload}"
        yield f"      watch: {compare.watch}"
    for issue in verdict.issues:
        yield f"  thread: {issue}"


def json_report(evidence: Evidence, verdicts: Sequence[Verdict]) -> dict[str, object]:
    """The answers as plain data."""
    metrics = evidence.metrics
    return {
        "format": FORMAT,
        "basis": metrics.basis if metrics else None,
        "unreadable_lines": metrics.after.num_faults if metrics else 0,
        "settings_from": evidence.settings_from if evidence.view else None,
        "version": str(evidence.view.version) if evidence.view else None,
        "verdicts": [_as_data(one) for one in verdicts],
    }


def _as_data(verdict: Verdict) -> dict[str, object]:
    compare = verdict.comparison
    return {
        "question": verdict.question,
        "title": verdict.title,
        "answer": verdict.answer.value,
        "text": verdict.text,
        "figures": dict(verdict.figures),
        "missing": list(verdict.missing),
        "comparison": {
            "first": compare.first,
            "second": compare.second,
            "workload": compare.workload,
            "watch": compare.watch,
        }
        if compare
        else None,
        "issues": list(verdict.issues),
    }
