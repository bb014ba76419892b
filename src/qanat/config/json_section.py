"""Typed, checked access to the JSON files of a model folder; errors name what is missing or wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.core.errors import CheckpointError


@dataclass(frozen=True)
class JsonSection:
    """One JSON object; `null` counts as absent.

    Attributes:
        values: the object.
        where: its place, as errors shall name it.
    """

    values: Mapping[str, Any]
    where: str

    def get(self, key: str, default: Any = None) -> Any:
        """The raw value, or the default."""
        value = self.values.get(key)
        return default if value is None else value

    def _need(self, key: str, default: Any, kind: str) -> Any:
        value = self.get(key, default)
        if value is None:
            raise CheckpointError(f"{self.where} has no {key!r} ({kind}); it is needed for this architecture")
        return value

    def integer(self, key: str, default: int | None = None, minimum: int = 1) -> int:
        """A whole number of at least `minimum`."""
        value = self._need(key, default, "whole number")
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise CheckpointError(f"{self.where}: {key} must be a whole number >= {minimum}, not {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite positive number."""
        value = self._need(key, default, "number")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise CheckpointError(f"{self.where}: {key} must be a positive number, not {value!r}")
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.where}: {key} must be true or false, not {value!r}")
        return value

    def section(self, key: str) -> JsonSection | None:
        """A nested object, or None if it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise CheckpointError(f"{self.where}: {key} must be an object, not {value!r}")
        return JsonSection(value, f"{self.where}.{key}")

    def integers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers; empty if absent."""
        value = self.get(key, [])
        if not isinstance(value, list | tuple) or any(
            isinstance(x, bool) or not isinstance(x, int) for x in value
        ):
            raise CheckpointError(f"{self.where}: {key} must be a list of whole numbers, not {value!r}")
        return tuple(value)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds.

    Raises:
        CheckpointError: the file is missing, unreadable, or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} has no {path.name}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object")
    return value
