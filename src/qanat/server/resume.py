"""Requests that go on with the output of an earlier one: who may send them, and what they must say.

The same prompt, settings and seed give the same tokens, so an answer that broke off goes on from the tokens that the
client has had as if it had never broken off. They are read again from the first on: reasoning, calls and stop strings
that begin in them end in what follows.
"""

from __future__ import annotations

from qanat.core.errors import InvalidRequestError, QanatError
from qanat.core.sampling_params import SamplingParams
from qanat.engine.continuation import PriorOutput, prior_outputs
from qanat.server.caller import Caller
from qanat.server.prompts import check_ids
from qanat.server.requests import GenerationRequest

FIELD = "resume.output_token_ids"
PROMPT_FIELD = "resume.prompt_token_ids"
FIELD_NAMES = {"output_token_ids": FIELD}
"""How a request spells what the engine calls otherwise."""


class ResumeForbiddenError(QanatError):
    """The caller may not go on with earlier output."""

    code = "resume_not_allowed"
    status = 403


def prior_output(
    request: GenerationRequest, sampling: SamplingParams, caller: Caller, vocab_size: int
) -> PriorOutput:
    """Output to go on with, one entry per choice; empty for requests without `resume`.

    Raises:
        ResumeForbiddenError: the caller may not.
        InvalidRequestError: there is no seed, log-probabilities are asked for, every choice has ended, or the tokens
            are none of the vocabulary's.
    """
    if request.resume is None:
        return ()
    if not (caller.may_resume or caller.is_admin):
        raise ResumeForbiddenError(
            "resume needs an admin key, a key with `resume: true` in --api-keys-file, or a server started with "
            "--allow-resume.",
            param="resume",
        )
    if sampling.seed is None:
        raise InvalidRequestError(
            "resume needs the seed of the earlier request: the tokens depend on it.", param="seed"
        )
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(sampling, name) is not None:
            raise InvalidRequestError(
                f"{name} cannot be had with resume: those of the earlier tokens are not computed again.",
                param=name,
            )
    given = request.resume.output_token_ids
    if not given:
        raise InvalidRequestError(f"{FIELD} needs one entry for each choice.", param=FIELD)
    try:
        return prior_outputs(given, sampling.n, vocab_size)
    except InvalidRequestError as error:
        error.param = FIELD_NAMES.get(error.param or "", error.param)
        raise


def prompt_of(request: GenerationRequest, token_ids: list[int], vocab_size: int) -> list[int]:
    """The prompt: the earlier request's if it is given, else this one's.

    Raises:
        InvalidRequestError: a token id is none of the vocabulary's.
    """
    given = request.resume.prompt_token_ids if request.resume is not None else None
    if given is None:
        return token_ids
    check_ids(given, vocab_size, PROMPT_FIELD)
    return given
