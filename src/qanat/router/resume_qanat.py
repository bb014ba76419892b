"""Going on with a stream of Qanat on another one: the same request, with the tokens that the client has."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from qanat.router.journal import Journal
from qanat.router.model import Call

_SEED_BITS = 53  # every JSON reader keeps so large an integer


@dataclass(slots=True)
class TokenLeg:
    """One engine's part of a stream.

    Attributes:
        changes: to the request's body.
        muted: choices that have ended, of which the last token is computed again so that the usage counts them.
        index_shift: added to the index of its choices.
        keeps_end: the usage chunk and the end of this part are those of the stream.
    """

    changes: dict[str, Any]
    muted: set[int] = field(default_factory=set)
    index_shift: int = 0
    keeps_end: bool = True


class TokenResumer:
    """What a Qanat engine is asked for, at first and after a break.

    Args:
        call: the client's request.
        journal: of its stream.
    """

    def __init__(self, call: Call, journal: Journal) -> None:
        self._call = call
        self._fields = call.fields or {}
        self._journal = journal
        self._seed: int | None = None
        resume = self._fields.get("resume")
        if isinstance(resume, dict) and isinstance(resume.get("output_token_ids"), list):
            journal.begin_resumed(resume["output_token_ids"])
            journal.prompt_token_ids = resume.get("prompt_token_ids")
        prompt = self._fields.get("prompt")
        self._prompts = prompt if is_prompt_list(prompt) else None

    @property
    def shows_ids(self) -> bool:
        """The client asked for token ids itself."""
        return self._fields.get("return_token_ids") is True

    @property
    def counts_usage(self) -> bool:
        """The client wants token counts."""
        return wants_usage(self._fields)

    @property
    def is_ended(self) -> bool:
        """The client has all that it is to have, but for the mark of the end."""
        journal = self._journal
        has_usage = journal.has_usage_chunk or not wants_usage_chunk(self._fields)
        return journal.has_ended(num_choices_of(self._call)) and has_usage

    def refusal(self) -> str:
        """Why a break of the stream could not be mended; empty if it can."""
        if (
            self._fields.get("logprobs") not in (None, False)
            or self._fields.get("prompt_logprobs") is not None
        ):
            return "log-probabilities were asked for"
        if (
            self._prompts is not None
            and len(self._prompts) > 1
            and wants_usage(self._fields, is_running=True)
        ):
            return "running token counts over several prompts were asked for"
        return self._journal.gap

    def first_leg(self) -> TokenLeg:
        """The request, with what makes it possible to resume it: token ids, and a seed where the client gave none."""
        return TokenLeg(self._shared_changes())

    def next_legs(self, elapsed_s: float) -> list[TokenLeg]:
        """What is left after a break: one part for each prompt, as engines resume one at a time.

        Args:
            elapsed_s: since the request came; its `timeout` counts from there.
        """
        changes = {**self._shared_changes(), **remaining_timeout(self._fields, elapsed_s)}
        if self._prompts is None:
            return [self._leg(changes, 0)]
        legs = []
        for position, prompt in enumerate(self._prompts):
            first = position * self._call.num_choices
            is_over = all(self._is_over(first + i) for i in range(self._call.num_choices))
            if not is_over or self.counts_usage:
                legs.append(self._leg({**changes, "prompt": prompt}, first))
        for leg in legs[:-1]:
            leg.keeps_end = False
        return legs

    def _is_over(self, index: int) -> bool:
        so_far = self._journal.choices.get(index)
        return so_far is not None and so_far.is_finished

    def _leg(self, changes: dict[str, Any], first: int) -> TokenLeg:
        outputs: list[list[int] | None] = []
        muted: set[int] = set()
        for i in range(self._call.num_choices):
            so_far = self._journal.choice(first + i)
            if not so_far.is_finished:
                outputs.append(so_far.token_ids)
            elif self.counts_usage and so_far.token_ids and not so_far.is_absent:
                outputs.append(so_far.token_ids[:-1])
                muted.add(i)
            else:
                outputs.append(None)
        resume: dict[str, Any] = {"output_token_ids": outputs}
        if self._journal.prompt_token_ids is not None and self._prompts is None:
            resume["prompt_token_ids"] = self._journal.prompt_token_ids
        if any(outputs) or None in outputs:
            changes = {**changes, "resume": resume}
        return TokenLeg(changes, muted, first)

    def _shared_changes(self) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if not self.shows_ids:
            changes["return_token_ids"] = True
        if self._fields.get("seed") is None:
            if self._seed is None:
                self._seed = secrets.randbits(_SEED_BITS)
            changes["seed"] = self._seed
        return changes


def is_prompt_list(prompt: Any) -> TypeGuard[list[Any]]:
    """True for a list of prompts; a list of token ids is one prompt."""
    return isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)


def num_choices_of(call: Call) -> int:
    """Choices of the whole answer: a request may have several prompts, each with as many."""
    prompt = (call.fields or {}).get("prompt")
    return call.num_choices * (len(prompt) if is_prompt_list(prompt) else 1)


def wants_usage_chunk(fields: dict[str, Any]) -> bool:
    """The stream is to end with the token counts."""
    options = fields.get("stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def wants_usage(fields: dict[str, Any], *, is_running: bool = False) -> bool:
    """Token counts are wanted at the end or, or only, in every chunk."""
    options = fields.get("stream_options")
    has_running = isinstance(options, dict) and options.get("continuous_usage_stats") is True
    return has_running or (not is_running and wants_usage_chunk(fields))


def remaining_timeout(fields: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    """The request's `timeout` less what has passed, as a change to its body."""
    timeout = fields.get("timeout")
    if isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
        return {"timeout": max(timeout - elapsed_s, 0.001)}
    if isinstance(timeout, dict) and isinstance(timeout.get("total"), (int, float)):
        return {"timeout": {"total": max(timeout["total"] - elapsed_s, 0.001)}}
    return {}
