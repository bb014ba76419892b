"""Turns the core's token outputs into events with text, and ends a request at its stop strings."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import msgspec

from qanat.core.batch import TokenLogprobs
from qanat.core.errors import InvalidRequestError
from qanat.core.events import GenerationEvent, LogprobEntry, PositionLogprobs
from qanat.core.outputs import RequestOutput, RequestTiming
from qanat.core.request import FinishReason, Request
from qanat.core.sampling_params import SamplingParams
from qanat.engine.detokenizer import IncrementalDetokenizer, StopMatch, StopStringChecker
from qanat.engine.tokenizer import Tokenizer


@dataclass
class Step:
    """What one output of the core means for the client.

    Attributes:
        event: to be sent.
        must_abort: the choice ended here while the core still works on it.
    """

    event: GenerationEvent
    must_abort: bool = False


class OutputProcessor:
    """State of one choice at the front end: text, stop strings, counters.

    Tokens are taken one by one, so an output that carries several (speculation) ends at exactly the same token,
    text and count as the same tokens in single outputs.

    Attributes:
        prior_text: text that the request's prior output had released; events tell what comes after it.

    Raises:
        InvalidRequestError: the prior output ends with a stop string.
    """

    def __init__(self, tokenizer: Tokenizer, request: Request) -> None:
        self._tokenizer = tokenizer
        self._request = request
        sampling = request.sampling
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=sampling.skip_special_tokens
        )
        self._stops = StopStringChecker(sampling.stop, is_included=sampling.include_stop_str_in_output)
        self._num_output_tokens = 0
        self._prompt_logprobs: list[PositionLogprobs | None] = [None]
        self._is_prompt_reported = sampling.prompt_logprobs is None
        self._has_text = sampling.detokenize
        self._first_timing: RequestTiming | None = None
        self._first_token_s = 0.0
        # Without stop strings and scores nothing depends on single tokens, so they are taken all at once.
        self._is_plain = not sampling.stop and sampling.prompt_logprobs is None
        self._eos_ids = frozenset(tokenizer.eos_token_ids) - frozenset(sampling.stop_token_ids)
        self.prior_text = self._replay(request.output_token_ids)

    def end_timing(self) -> RequestTiming | None:
        """The times of a choice that ends now, where the core does not say them; None before its first token."""
        if self._first_timing is None:
            return None
        decode_s = time.monotonic() - self._first_token_s
        return msgspec.structs.replace(self._first_timing, decode_s=decode_s)

    def process(self, output: RequestOutput) -> Step:
        """Folds one output of the core into an event."""
        if output.timing is not None and self._first_timing is None:
            self._first_timing, self._first_token_s = output.timing, time.monotonic()
        if self._is_plain and not output.logprobs and output.finish_reason is None:
            self._num_output_tokens += len(output.new_token_ids)
            text = self._detokenizer.push_all(output.new_token_ids) if self._has_text else ""
            return Step(self._make_event(output, _Progress(text, output.new_token_ids), None, None))
        self._prompt_logprobs += [self._position(entry) for entry in output.prompt_logprobs]
        progress = _Progress()
        for i, token_id in enumerate(output.new_token_ids):
            self._num_output_tokens += 1
            progress.token_ids.append(token_id)
            if output.logprobs:
                progress.logprobs.append(self._position(output.logprobs[i]))
            if token_id == output.stop_token_id and i == len(output.new_token_ids) - 1:
                progress.text += self._stop_token_text(token_id)
                break
            released = self._push_text(token_id)
            if isinstance(released, StopMatch):
                return self._stopped(output, progress, released)
            progress.text += released
        return Step(self._event(output, progress))

    def _replay(self, token_ids: list[int]) -> str:
        text = ""
        for token_id in token_ids:
            self._num_output_tokens += 1
            released = self._push_text(token_id)
            if isinstance(released, StopMatch):
                raise InvalidRequestError(
                    f"Choice {self._request.choice_index} already ended at its output token {self._num_output_tokens}, "
                    f"where the stop string {released.stop!r} is complete. Give null for a choice that has ended.",
                    param="output_token_ids",
                )
            text += released
        return text

    def _push_text(self, token_id: int) -> str | StopMatch:
        if not self._request.sampling.detokenize:
            return ""
        text = self._detokenizer.push(token_id)
        if self._num_output_tokens <= self._request.sampling.min_tokens:
            return text
        return self._stops.push(text)

    def _stop_token_text(self, token_id: int) -> str:
        """A stop token's own text is output only if stops are to be included."""
        sampling = self._request.sampling
        if not (sampling.include_stop_str_in_output and sampling.detokenize):
            return ""
        return self._stops.finish() + self._detokenizer.push(token_id)

    def _stopped(self, output: RequestOutput, progress: _Progress, match: StopMatch) -> Step:
        progress.text += match.text
        is_core_done = output.finish_reason is not None
        if not is_core_done:
            output = msgspec.structs.replace(output, timing=self.end_timing())
        event = self._make_event(output, progress, FinishReason.STOP, match.stop)
        return Step(event, must_abort=not is_core_done)

    def _event(self, output: RequestOutput, progress: _Progress) -> GenerationEvent:
        stop_reason = None
        if output.finish_reason is not None and self._request.sampling.detokenize:
            tail = self._stops.push(self._detokenizer.finish())
            if isinstance(tail, StopMatch):
                progress.text += tail.text
            else:
                progress.text += tail + self._stops.finish()
        if output.stop_token_id is not None and output.stop_token_id not in self._eos_ids:
            stop_reason = output.stop_token_id
        return self._make_event(output, progress, output.finish_reason, stop_reason)

    def _make_event(
        self,
        output: RequestOutput,
        progress: _Progress,
        finish_reason: FinishReason | None,
        stop_reason: str | int | None,
    ) -> GenerationEvent:
        is_prompt_done = bool(progress.token_ids) or finish_reason is not None
        prompt_logprobs = None
        if is_prompt_done and not self._is_prompt_reported:
            self._is_prompt_reported = True
            prompt_logprobs = self._prompt_logprobs
        return GenerationEvent(
            index=self._request.choice_index,
            text=progress.text,
            token_ids=progress.token_ids,
            logprobs=progress.logprobs,
            prompt_logprobs=prompt_logprobs,
            finish_reason=finish_reason,
            stop_reason=stop_reason,
            error_code=output.error_code,
            error_message=output.error_message,
            error_param=output.error_param,
            num_prompt_tokens=self._request.num_prompt_tokens,
            num_output_tokens=self._num_output_tokens,
            num_cached_tokens=output.num_cached_tokens,
            timing=output.timing,
            num_drafted=output.num_drafted,
            num_accepted=output.num_accepted,
            prefix=output.prefix,
        )

    def _position(self, entry: TokenLogprobs) -> PositionLogprobs:
        """Splits the chosen token, which comes first, from its alternatives, best first."""
        chosen = self._entry(entry.token_ids[0], entry.logprobs[0], entry.rank)
        top = [
            self._entry(token_id, logprob, rank)
            for rank, (token_id, logprob) in enumerate(
                zip(entry.token_ids[1:], entry.logprobs[1:], strict=True), 1
            )
        ]
        return PositionLogprobs(chosen, top)

    def _entry(self, token_id: int, logprob: float, rank: int) -> LogprobEntry:
        raw = self._tokenizer.token_bytes(token_id)
        return LogprobEntry(token_id, raw.decode(errors="replace"), list(raw), logprob, rank)


def prior_text(tokenizer: Tokenizer, sampling: SamplingParams, token_ids: list[int]) -> str:
    """Text that a choice has released with these tokens: what the events of its continuation begin after.

    Raises:
        InvalidRequestError: they end with a stop string.
    """
    request = Request(
        request_id="", prompt_token_ids=[], sampling=sampling, seed=0, output_token_ids=token_ids
    )
    return OutputProcessor(tokenizer, request).prior_text


@dataclass
class _Progress:
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] = field(default_factory=list)
