"""From the few numbers of a call to its prompt and its settings."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from qanat.core.sampling_params import SamplingParams
from tests.matrix.answers import Answer
from tests.matrix.scenario import Call

FIRST_ID, LAST_ID = 5, 900
"""Prompts are made of ids in between, among which there are no special tokens."""
MAX_FOLLOWED = 200
"""Tokens of a prompt and an answer that a follower takes over at most."""


def prompts_of(calls: list[Call], answers: list[list[Answer]], index: int) -> list[int]:
    """The prompt of a call, given what the calls before it got."""
    call = calls[index]
    own = _ids(f"own {index}", call.num_own)
    if call.period:
        own = [own[i % call.period] for i in range(call.num_own)]
    begun: list[int] = []
    earlier = call.followed(index)
    if earlier is not None:
        begun = [*prompts_of(calls, answers, earlier), *answers[earlier][0].token_ids][:MAX_FOLLOWED]
    return [*begun, *_ids(f"stem {call.stem}", call.num_common), *own]


def sampling_of(call: Call) -> SamplingParams:
    """Its settings; whoever names no seed gets one, as he would at admission."""
    fields: dict[str, Any] = {"seed": 0, **call.sampling}
    return msgspec.convert(fields, SamplingParams, str_keys=True)


def _ids(name: str, count: int) -> list[int]:
    return random.Random(name).choices(range(FIRST_ID, LAST_ID), k=count)
