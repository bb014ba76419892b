"""From a JSON body to a typed request, with errors that name the field."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from qanat.core.errors import InvalidRequestError
from qanat.server.fields import RefusedField, drop_unused_fields

RequestType = TypeVar("RequestType", bound=msgspec.Struct)

_LOCATION = re.compile(r" - at (?:`key` in |`value` in )?`\$\.?(.*)`$")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `([^`]*)`")
_NO_SUCH_VALUE = "Invalid enum value"
_TYPE_WORDS = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}


def decode_request(body: bytes, kind: type[RequestType], refusals: Mapping[str, RefusedField]) -> RequestType:
    """Parses and checks a request body.

    Raises:
        InvalidRequestError: not JSON, not an object, a wrong type, an unknown field, or a refused one.
    """
    raw = _decode_object(body)
    try:
        return msgspec.convert(drop_unused_fields(raw, refusals), kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind) from None
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None


def _decode_object(body: bytes) -> dict[str, Any]:
    try:
        raw = msgspec.json.decode(body)
    except RecursionError:
        raise InvalidRequestError("The body is nested too deeply.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(raw, dict):
        raise InvalidRequestError("The body must be a JSON object.")
    return raw


def _explain(message: str, kind: type[msgspec.Struct]) -> InvalidRequestError:
    """Turns msgspec's words into ours: the field first, types by their JSON names."""
    location = _LOCATION.search(message)
    path = location.group(1) if location else ""
    text = message[: location.start()] if location else message
    if unknown := _UNKNOWN_FIELD.search(text):
        name = _join(path, unknown.group(1))
        return InvalidRequestError(
            f"Unknown field {name}.{_nearest(name, kind) if not path else ''}", param=name
        )
    if missing := _MISSING_FIELD.search(text):
        name = _join(path, missing.group(1))
        return InvalidRequestError(f"{name} is required.", param=name)
    if text.startswith(_NO_SUCH_VALUE) and (known := _known_values(path, kind)):
        return InvalidRequestError(f"{path} must be one of {', '.join(known)}.", param=path)
    words = re.sub(r"`([^`]*)`", lambda match: _json_types(match.group(1)), text)
    return InvalidRequestError(f"{path}: {words[:1].lower()}{words[1:]}.", param=path or None)


def _known_values(name: str, kind: type[msgspec.Struct]) -> list[str]:
    """What a field may be that takes some texts only; empty for others, and within objects."""
    known: list[str] = []
    waiting = [get_type_hints(kind).get(name)]
    while waiting:
        hint = waiting.pop()
        if get_origin(hint) is Literal:
            known += get_args(hint)
        else:
            waiting += get_args(hint)
    return known


def _json_types(types: str) -> str:
    return " or ".join(_TYPE_WORDS.get(name, name) for name in types.split(" | "))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _nearest(name: str, kind: type[msgspec.Struct]) -> str:
    near = difflib.get_close_matches(name, kind.__struct_encode_fields__, n=1)
    return f" Did you mean {near[0]}?" if near else ""
