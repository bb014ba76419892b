"""Reads the fields of a structural tag's formats, each with its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qanat.core.errors import StructuredOutputError

Format = Mapping[str, Any]
"""A node of a structural tag, as decoded."""


def object_of(value: Any, name: str) -> Format:
    """A value that must be an object.

    Args:
        value: to check.
        name: the field that holds it, for the message.

    Raises:
        StructuredOutputError: it is none.
    """
    if not isinstance(value, Mapping):
        raise StructuredOutputError(f"The structural tag's {name} must be an object.")
    return value


def list_of(node: Format, name: str) -> list[Any]:
    """A field that must be a list.

    Raises:
        StructuredOutputError: it is none, or absent.
    """
    value = node.get(name)
    if not isinstance(value, list):
        raise StructuredOutputError(f"The structural tag's {name} must be a list.")
    return value


def text_of(node: Format, name: str) -> str:
    """A field that must be a text.

    Raises:
        StructuredOutputError: it is none, or absent.
    """
    value = node.get(name)
    if not isinstance(value, str):
        raise StructuredOutputError(f"The structural tag's {name} must be a text.")
    return value
