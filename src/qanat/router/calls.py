"""What the router reads of a request before anything is done with it: enough to choose, nothing to judge."""

from __future__ import annotations

import hashlib
from typing import Any, TypeGuard

from qanat.router.json_body import decoded, named
from qanat.router.model import Call

BYTES_PER_TOKEN = 4
MAX_CHOICES = 128
MAX_SESSION_CHARS = 512
KEY_HEADERS = (b"authorization", b"x-api-key")
SESSION_HEADER = b"x-session-id"
_LENGTH_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def read_call(call: Call) -> None:
    """Fills in what the body and the headers say. A body that is no JSON object is left to the engine to refuse."""
    call.key_hash = key_hash(api_key(call))
    call.fields = decoded(call.body)
    fields = call.fields if call.fields is not None else named(call.body)
    call.num_prompt_tokens = len(call.body) // BYTES_PER_TOKEN
    header = call.header(SESSION_HEADER)
    if header is not None:
        call.session = header.decode("latin-1")[:MAX_SESSION_CHARS]
    call.model = _text(fields.get("model"))
    call.is_stream = fields.get("stream") is True
    num_choices = fields.get("n")
    if _is_count(num_choices):
        call.num_choices = min(max(num_choices, 1), MAX_CHOICES)
    call.max_tokens = next((fields[name] for name in _LENGTH_FIELDS if _is_count(fields.get(name))), None)
    if _is_count(fields.get("priority")):
        call.priority = fields["priority"]
    if call.session is None and (user := _text(fields.get("user"))):
        call.session = user[:MAX_SESSION_CHARS]
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt:
        call.num_prompt_tokens = _num_tokens(prompt, call.num_prompt_tokens)


def _text(value: Any) -> str | None:
    """A text that logs and errors can bear; None for nothing, and for what is no text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _num_tokens(prompt: list[Any], estimate: int) -> int:
    """Prompts of token ids are as long as they are."""
    if all(map(_is_count, prompt)):
        return len(prompt)
    if all(isinstance(one, list) for one in prompt):
        return sum(map(len, prompt))
    return estimate


def api_key(call: Call) -> str:
    """The key that the client sent, as a bearer token or as X-Api-Key; empty for none."""
    value = call.header(b"authorization")
    if value is not None:
        scheme, _, key = value.decode("latin-1").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""
    return (call.header(b"x-api-key") or b"").decode("latin-1")


def key_hash(key: str) -> str:
    """What stands for a key where the key itself must not; empty for no key."""
    return hashlib.blake2b(key.encode("latin-1", "replace"), digest_size=6).hexdigest() if key else ""
