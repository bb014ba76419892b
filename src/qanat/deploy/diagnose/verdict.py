"""An answer to a question of performance, with its figures and the comparison that settles it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from qanat.deploy.diagnose.evidence import Evidence


class Answer(str, Enum):
    """What was found out."""

    CAUSE = "cause found"
    FINE = "not the cause"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True)
class Comparison:
    """Two runs that differ in one thing, and the load to run against both.

    Attributes:
        first: flags or variables of run A.
        second: those of run B.
        workload: a `vllm bench serve` command.
        watch: which of its figures to compare.
    """

    first: str
    second: str
    workload: str
    watch: str


@dataclass(frozen=True)
class Verdict:
    """An answer.

    Attributes:
        question: short name, for scripts.
        title: the question.
        answer: what was found out.
        text: why, in one to three sentences.
        figures: what it was told from, as name and value.
        missing: which figures would tell more.
        comparison: what to run; None where nothing is to be compared.
        issues: threads about it.
    """

    question: str
    title: str
    answer: Answer
    text: str
    figures: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    comparison: Comparison | None = None
    issues: tuple[str, ...] = ()


@dataclass
class Case:
    """Collects the figures of one answer while it is worked out."""

    question: str
    title: str
    figures: list[tuple[str, str]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def saw(self, name: str, value: float | str | None, unit: str = "") -> None:
        """Notes a figure; one that is None is missing."""
        if value is None:
            self.missing.append(name)
        else:
            shown = value if isinstance(value, str) else number(value)
            self.figures.append((name, f"{shown}{f' {unit}' if unit else ''}"))

    def says(
        self, answer: Answer, text: str, comparison: Comparison | None = None, issues: tuple[str, ...] = ()
    ) -> Verdict:
        """The answer."""
        return Verdict(
            self.question,
            self.title,
            answer,
            text,
            tuple(self.figures),
            tuple(self.missing),
            comparison,
            issues,
        )

    def unknown(self, *missing: str) -> Verdict:
        """That it cannot be told, for want of these figures."""
        self.missing += missing
        return self.says(Answer.UNKNOWN, f"Missing: {', '.join(self.missing)}.")


def number(value: float) -> str:
    """A number for people: three digits behind the point at most, thousands with commas."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def workload(evidence: Evidence, prefix_tokens: int = 0, concurrency: int | None = None) -> str:
    """A `vllm bench serve` command with lengths and concurrency near those that were seen.

    Args:
        evidence: says what was seen; round figures stand in for what it does not.
        prefix_tokens: of the prompt that all requests share.
        concurrency: requests at once, if not as seen.
    """
    prompts = evidence.metrics.histogram("prompt_length") if evidence.metrics else None
    outputs = evidence.metrics.histogram("output_length") if evidence.metrics else None
    bench = evidence.bench
    prompt = (bench.per_request("total_input_tokens") if bench else None) or (
        prompts.mean if prompts else None
    )
    output = (bench.per_request("total_output_tokens") if bench else None) or (
        outputs.mean if outputs else None
    )
    seen = (bench.concurrency if bench else None) or evidence.gauge("running")
    at_once = concurrency or max(1, round(seen or 16))
    words = [
        f"vllm bench serve --model {evidence.model_name} --dataset-name random",
        f"--random-input-len {max(1, round(prompt or 3500))} --random-output-len {max(2, round(output or 1500))}",
        f"--max-concurrency {at_once} --num-prompts {max(16, 8 * at_once)} --ignore-eos --save-result",
    ]
    if prefix_tokens:
        words.insert(2, f"--random-prefix-len {prefix_tokens}")
    return " ".join(words)
