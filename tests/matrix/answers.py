"""What came of a call, in the form in which answers are compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from qanat.core.events import GenerationEvent, PositionLogprobs
from qanat.core.request import FinishReason
from qanat.worker.model_runner import NOT_FINITE


@dataclass
class Answer:
    """One choice, folded from its events.

    Attributes:
        token_ids: of the output.
        logprobs: one text for each token: every number to its last bit.
        prompt_logprobs: the same for the prompt; empty if not asked for.
        text: of the output.
        end: finish reason, stop reason and error; None while it has none.
    """

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[str] = field(default_factory=list)
    prompt_logprobs: list[str] = field(default_factory=list)
    text: str = ""
    end: tuple[str, str | int | None, str] | None = None

    @property
    def is_aborted(self) -> bool:
        """True if it broke off because nobody wanted it any more."""
        return self.end is not None and self.end[0] == FinishReason.ABORT.value

    @property
    def is_spoilt(self) -> bool:
        """True if it broke off because its scores were no numbers."""
        return self.end is not None and self.end[2] == NOT_FINITE

    def take(self, event: GenerationEvent) -> None:
        """Adds an event.

        Raises:
            AssertionError: it has ended before.
        """
        assert self.end is None, f"{event} after {self.end}"
        self.token_ids += event.token_ids
        self.logprobs += [_bits(position) for position in event.logprobs]
        self.prompt_logprobs += [_bits(position) for position in event.prompt_logprobs or ()]
        self.text += event.text
        if event.finish_reason is not None:
            self.end = event.finish_reason.value, event.stop_reason, event.error_message


def differences(
    expected: Answer, found: Answer, num_prior: int = 0, *, may_be_spoilt: bool = False
) -> list[str]:
    """Where an answer is not what it would be alone, in words.

    Args:
        expected: alone, from the first token on.
        found: in company; of one that broke off, what came before that.
        num_prior: tokens that it brought along.
        may_be_spoilt: its scores were to be spoilt.
    """
    faults = []
    is_broken = found.is_aborted or (may_be_spoilt and found.is_spoilt)
    parts = [("token_ids", num_prior), ("logprobs", num_prior), ("prompt_logprobs", 0)]
    if expected.end is not None and expected.end[0] == FinishReason.ERROR.value:
        parts.pop()  # alone the prompt came with the error; in chunks a part of it was told before
    for name, start in parts:
        wanted, got = getattr(expected, name)[start:], getattr(found, name)
        if is_broken:
            wanted = wanted[: len(got)]
        if wanted != got:
            num_both = min(len(wanted), len(got))
            place = next((i for i in range(num_both) if wanted[i] != got[i]), num_both)
            faults.append(
                f"{name} differ from {start + place} on: {wanted[place : place + 3]} alone, "
                f"{got[place : place + 3]} here"
            )
    if not is_broken and expected.end != found.end:
        faults.append(f"it ends with {expected.end} alone, with {found.end} here")
    if not is_broken and not num_prior and expected.text != found.text:
        faults.append(f"the text is {expected.text!r} alone, {found.text!r} here")
    return faults


def _bits(position: PositionLogprobs | None) -> str:
    """Ids and log-probabilities, the chosen token first, then its rank."""
    if position is None:
        return "none"
    entries = [position.chosen, *position.top]
    numbers = ", ".join(f"{entry.token_id}: {entry.logprob!r}" for entry in entries)
    return f"{numbers} (rank {position.chosen.rank})"
