"""Are mistakes of clients told as such?"""

from __future__ import annotations

import json

from qanat.deploy.verify.check import COMPLETIONS, Context, check
from qanat.deploy.verify.exchange import Answer
from qanat.deploy.verify.service import Fault, message_of, shown

UNKNOWN_MODEL = "qanat-verify-no-such-model"
SHOWN_CHARS = 100


@check("unknown_model", "unknown model is a 404", needs=("ready",))
async def unknown_model(context: Context) -> str:
    """A request for a model that is not there."""
    body = {"model": UNKNOWN_MODEL, "prompt": "a", "max_tokens": 1}
    answer = await context.service.post(COMPLETIONS, json.dumps(body).encode())
    return _judge(answer, (404,))


@check("malformed_json", "malformed JSON is a 4xx", needs=("ready",))
async def malformed_json(context: Context) -> str:
    """A request that is no JSON."""
    return _judge(await context.service.post(COMPLETIONS, b'{"model": '), range(400, 500))


@check("wrong_value", "wrong value is a 4xx")
async def wrong_value(context: Context) -> str:
    """A request with a field of the wrong type."""
    body = {"model": context.model, "prompt": "a", "max_tokens": "many"}
    answer = await context.service.post(COMPLETIONS, json.dumps(body).encode())
    return _judge(answer, range(400, 500))


def _judge(answer: Answer, expected: range | tuple[int, ...]) -> str:
    seen = f"status {answer.status}: {shown(message_of(answer.body), SHOWN_CHARS)}"
    if answer.status < 400:
        symptom = "empty_answer" if not answer.body.strip() else "mistake_accepted"
        raise Fault(symptom, seen, answer.status)
    if answer.status >= 500:
        raise Fault("mistake_as_server_error", seen, answer.status)
    if answer.status not in expected:
        raise Fault("other_error_status", seen, answer.status)
    return seen
