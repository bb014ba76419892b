"""The few fields of a streamed chunk that the relay acts upon; the rest of it is passed over undecoded."""

from __future__ import annotations

from typing import Any

import msgspec

_ABSENT = msgspec.Raw()


class Delta(msgspec.Struct):
    """What a chat chunk adds to its choice. Engines differ, so that little is demanded of the values."""

    role: Any = None
    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class TextChoice(msgspec.Struct):
    """News of one choice, of any engine."""

    index: int = 0
    text: str | None = None
    delta: Delta | None = None
    finish_reason: Any = None
    stop_reason: Any = None
    token_ids: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT


class TextChunk(msgspec.Struct):
    """One event of any engine; `error` in place of choices where something went wrong, or `object` says so."""

    object: Any = None
    message: Any = None
    code: Any = None
    type: Any = None
    id: Any = ""
    created: Any = 0
    model: Any = ""
    choices: list[TextChoice] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class TokenChoice(msgspec.Struct):
    """News of one choice of an engine that was asked for token ids."""

    index: int = 0
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class TokenChunk(msgspec.Struct):
    """One event of an engine that was asked for token ids."""

    object: Any = None
    message: Any = None
    code: Any = None
    type: Any = None
    choices: list[TokenChoice] | None = None
    prompt_token_ids: list[int] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


_TEXT = msgspec.json.Decoder(TextChunk)
_TOKENS = msgspec.json.Decoder(TokenChunk)


def text_chunk(data: bytes) -> TextChunk | None:
    """The chunk in an event's payload; None if it is none."""
    try:
        return _TEXT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def token_chunk(data: bytes) -> TokenChunk | None:
    """The chunk in an event's payload; None if it is none."""
    try:
        return _TOKENS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_GONE_CODES = frozenset(("engine_dead", "engine_restarting", "unavailable", "shutting_down"))


_GONE_TYPES = ("internal", "server_error", "unavailable")


def has_value(raw: msgspec.Raw) -> bool:
    """The field was there, and was neither null nor an empty list."""
    return bytes(raw) not in (b"", b"null", b"[]")


def error_of(chunk: TextChunk | TokenChunk) -> Any:
    """The error that an event tells of, in today's form or in vLLM's old one; None if it tells of none."""
    if chunk.error is None and chunk.object == "error":
        return {"message": chunk.message, "type": chunk.type, "code": chunk.code}
    return chunk.error


def is_engine_gone(error: Any) -> bool:
    """True if an error event says that the engine failed, and not the request: another engine can go on with it.

    One that says nothing but a text may be either; another engine will tell.
    """
    if not isinstance(error, dict):
        return True
    code = error.get("code")
    if isinstance(code, str) and len(code) == 3 and code.isascii() and code.isdigit():
        code = int(code)
    if isinstance(code, int):
        return code >= 500
    if code is None:
        kind = str(error.get("type") or "").lower()
        return any(word in kind for word in _GONE_TYPES)
    return isinstance(code, str) and code in _GONE_CODES
