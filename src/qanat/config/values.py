"""How the values of flags are read: from text (command line, variables) and from typed values (YAML, Python)."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from qanat.core.errors import ConfigError


class Kind(enum.Enum):
    """What a flag's value is; the text is how help shows it."""

    TEXT = "TEXT"
    TEXTS = "TEXT [TEXT ...]"
    COUNT = "N"
    LENGTH = "N|auto"
    BYTES = "SIZE"
    NUMBER = "X"
    SWITCH = ""
    JSON = "JSON"


_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_COUNT_UNITS |= {letter.upper(): 2 ** (10 * power) for power, letter in enumerate("kmgt", start=1)}
_BYTE_UNITS = {f"{letter}iB": 2 ** (10 * power) for power, letter in enumerate("KMGT", start=1)}
_BYTE_UNITS |= {f"{letter}B": 10 ** (3 * power) for power, letter in enumerate("KMGT", start=1)}
_BYTE_UNITS |= {"B": 1, **_COUNT_UNITS}
_SCALED = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def read_text(kind: Kind, texts: Sequence[str], where: str) -> object:
    """The value that was written as these words; only `Kind.TEXTS` takes more than one.

    Args:
        kind: what is expected.
        texts: the words, at least one.
        where: flag or variable, for messages.

    Raises:
        ConfigError: the text is no such value.
    """
    if kind is Kind.TEXTS:
        return tuple(texts)
    text = texts[0]
    if kind is Kind.TEXT:
        return text
    if kind is Kind.SWITCH:
        return read_switch(text, where)
    if kind is Kind.COUNT:
        return read_scaled(text, where, _COUNT_UNITS, "a whole number such as 8192, 8k (8000) or 8K (8192)")
    if kind is Kind.LENGTH:
        if text.lower() in ("auto", "-1"):
            return None
        return read_scaled(text, where, _COUNT_UNITS, "a whole number such as 8192, 8k or 8K, or auto")
    if kind is Kind.BYTES:
        return read_scaled(text, where, _BYTE_UNITS, "a size such as 4GiB, 500MB or 1073741824")
    if kind is Kind.NUMBER:
        return _read_number(text, where)
    return read_json(text, where)


def read_value(kind: Kind, value: object, where: str) -> object:
    """The value that was given as a YAML or Python value; text is read as on the command line.

    Raises:
        ConfigError: it is of another type.
    """
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str) and kind is not Kind.TEXTS:
        return read_text(kind, [value], where)
    if kind is Kind.TEXTS:
        values = [value] if isinstance(value, str) else value
        if isinstance(values, Sequence) and all(isinstance(item, str) for item in values):
            return tuple(values)
    elif kind is Kind.SWITCH and isinstance(value, bool):
        return value
    elif (
        kind in (Kind.COUNT, Kind.BYTES, Kind.LENGTH)
        and isinstance(value, int)
        and not isinstance(value, bool)
    ):
        return None if kind is Kind.LENGTH and value == -1 else value
    elif kind is Kind.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif kind is Kind.JSON and isinstance(value, Mapping):
        return dict(value)
    raise ConfigError(f"{where}: {value!r} is not {_EXPECTED[kind]}.", param=where)


_EXPECTED = {
    Kind.TEXT: "text",
    Kind.TEXTS: "a text or a list of texts",
    Kind.COUNT: "a whole number",
    Kind.LENGTH: "a whole number or auto",
    Kind.BYTES: "a number of bytes or a size such as 4GiB",
    Kind.NUMBER: "a number",
    Kind.SWITCH: "true or false",
    Kind.JSON: "a mapping",
}


def read_switch(text: str, where: str) -> bool:
    """True or false, in the usual spellings.

    Raises:
        ConfigError: neither.
    """
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ConfigError(f"{where}: {text!r} is neither true nor false.", param=where)


def read_scaled(text: str, where: str, units: Mapping[str, int], expected: str) -> int:
    """A whole number with an optional unit; a fraction is allowed where the result is whole ("1.5k").

    Raises:
        ConfigError: not a number, an unknown unit, or a result that is not whole.
    """
    match = _SCALED.fullmatch(text.strip())
    if match and match[2] in units:
        digits, _, fraction = match[1].partition(".")
        scaled = int(digits + fraction) * units[match[2]]
        divisor: int = 10 ** len(fraction)
        if scaled % divisor == 0:
            return scaled // divisor
    raise ConfigError(f"{where}: {text!r} is not {expected}.", param=where)


def read_json(text: str, where: str) -> dict[str, object]:
    """A JSON object.

    Raises:
        ConfigError: invalid JSON, with the place of the fault and what usually causes it, or no object.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        hint = "" if text.lstrip().startswith("{") else " A JSON object starts with {."
        if "'" in text:
            hint = " JSON wants double quotes; put single quotes around the whole value in the shell."
        raise ConfigError(
            f"{where}: invalid JSON at character {error.pos + 1}: {error.msg}.{hint}", param=where
        ) from None
    if not isinstance(value, dict):
        raise ConfigError(f'{where}: {text!r} is not a JSON object such as {{"key": 1}}.', param=where)
    return value


def _read_number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{where}: {text!r} is not a number.", param=where)
    return value
