"""From what a step produced for a row to what became of the request."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.core.batch import RowOutput, TokenLogprobs
from qanat.core.errors import IntegrityError
from qanat.core.request import FinishReason
from qanat.scheduler.live_request import RunningRequest


@dataclass(frozen=True, slots=True)
class Progress:
    """What a request gained from tokens that were sampled for it.

    Attributes:
        num_taken: how many of the tokens belong to the output; those after its end do not.
        finish_reason: set if the output ends with them.
        stop_token_id: the token that ended it, if one did.
    """

    num_taken: int
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None


def check_row(running: RunningRequest, row_output: RowOutput, yields_output: bool) -> None:
    """Refuses results that do not answer what was scheduled; a wrong row would give one user another's tokens.

    Raises:
        IntegrityError: another row, tokens in the middle of a prompt, none at its end, or more than there is room for.
    """
    if row_output.row != running.row:
        raise IntegrityError(
            f"The worker answered for row {row_output.row} where row {running.row} was next."
        )
    if row_output.token_ids and not yields_output:
        raise IntegrityError(
            f"The worker sampled for row {running.row} before its known tokens were computed."
        )
    wants_tokens = yields_output and running.request.sampling.max_tokens != 0
    if wants_tokens and not row_output.token_ids and not row_output.error:
        raise IntegrityError(
            f"The worker returned no token for row {running.row}, whose tokens are all computed."
        )
    if len(row_output.token_ids) - 1 > running.num_spare:
        raise IntegrityError(
            f"The worker returned {len(row_output.token_ids)} tokens for row {running.row}, which has places for "
            f"{running.num_spare} more than one."
        )


def take_tokens(running: RunningRequest, token_ids: list[int]) -> Progress:
    """Appends sampled tokens up to the end of the output.

    A stop token counts once min_tokens output tokens are there, itself included; at the end of a form it counts at
    once. The length bound is max_tokens; `add` has made sure that it lies inside the window.
    """
    request = running.request
    output = running.output_token_ids
    # A form's end goes before min_tokens, and before that end the sampler lets no stop token through.
    min_tokens = request.sampling.min_tokens if request.constraint is None else 0
    progress = Progress(len(token_ids))
    for index, token_id in enumerate(token_ids):
        output.append(token_id)
        running.num_outputs_left -= 1
        if token_id in running.stop_token_ids and len(output) >= min_tokens:
            progress = Progress(index + 1, FinishReason.STOP, token_id)
            break
        if running.num_outputs_left <= 0:
            progress = Progress(index + 1, FinishReason.LENGTH)
            break
    # All but the newest token were computed in the step that produced them; one of them was counted when scheduled.
    num_more = progress.num_taken - 1
    request.num_computed_tokens += num_more
    running.num_spare -= num_more
    running.num_uncomputed += 1
    return progress


def new_prompt_logprobs(running: RunningRequest, entries: list[TokenLogprobs]) -> list[TokenLogprobs]:
    """The entries that have not been reported yet: a recomputed prompt yields its entries a second time."""
    live = running.live
    start = running.num_prompt_logprobs
    running.num_prompt_logprobs += len(entries)
    fresh = entries[max(0, live.num_prompt_logprobs - start) :]
    live.num_prompt_logprobs += len(fresh)
    return fresh
