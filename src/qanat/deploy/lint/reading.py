"""Values of flags, variables and JSON as the programs read them."""

from __future__ import annotations

import re

from qanat.deploy.sources.json_text import JsonNode

_NUMBER = re.compile(r"(\d+)(?:\.\d+)?([kKmMgG]?)")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}


def read_integer(text: str | None) -> int | None:
    """A whole number with an optional unit; small letters count by 1000, capital ones by 1024."""
    match = _NUMBER.fullmatch((text or "").strip())
    if match is None:
        return None
    whole = float((text or "").strip().rstrip("kKmMgG")) * _UNITS[match.group(2)]
    return int(whole) if whole == int(whole) and whole < 2**53 else None


def as_integer(node: JsonNode) -> int | None:
    """A JSON value as a whole number, also when it stands in quotes."""
    if isinstance(node.value, bool):
        return None
    if isinstance(node.value, int):
        return node.value
    return read_integer(node.value) if isinstance(node.value, str) else None


def is_truthy(value: object) -> bool:
    """Whether a switch is on by this value."""
    if isinstance(value, str):
        return value.strip().lower() not in ("", "0", "false", "no", "off")
    return bool(value)
