"""Places in a JSON schema: how errors name them, and where references lead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from qanat.core.errors import StructuredOutputError

Path = tuple[str, ...]
"""Keys and indices from the root of a schema."""

_MAX_PATH_CHARS = 200


def refuse(path: Path, why: str) -> StructuredOutputError:
    """The error for a fault at this place."""
    place = ".".join(("$", *path))
    if len(place) > _MAX_PATH_CHARS:
        place = place[:_MAX_PATH_CHARS] + "..."
    return StructuredOutputError(f"The JSON schema is refused at {place}: {why}.")


def target_of(root: Any, path: Path) -> Any:
    """What stands at a path; KeyError if nothing does."""
    found = root
    for step in path:
        if isinstance(found, Mapping) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            raise KeyError(step)
    return found


def find_reference(root: Any, reference: str, path: Path) -> Path:
    """The path that a `$ref` leads to: a JSON pointer, an `$anchor` or an `$id` of the same schema.

    Args:
        root: the whole schema.
        reference: the value of `$ref`.
        path: where it stands, for the error.

    Raises:
        StructuredOutputError: there is nothing, or it is outside the schema.
    """
    base, _, fragment = reference.partition("#")
    start: Path | None = ()
    if base:
        start = _find_named(root, ("$id", "id"), {base, f"{base}#"})
    fragment = unquote(fragment)
    if start is not None and fragment and not fragment.startswith("/"):
        start = _find_named(root, ("$anchor",), {fragment})
        fragment = ""
    if start is None:
        raise refuse(
            path, f"{reference!r} is not in this schema, and others are not fetched; put it under $defs"
        )
    steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in fragment.split("/")[1:])
    try:
        target_of(root, (*start, *steps))
    except KeyError:
        raise refuse(path, f"{reference!r} leads nowhere") from None
    return (*start, *steps)


def _find_named(root: Any, keywords: tuple[str, ...], names: set[str]) -> Path | None:
    """The path of the object that has one of the names under one of the keywords."""
    waiting: list[tuple[Path, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, Mapping):
            if any(isinstance(node.get(keyword), str) and node[keyword] in names for keyword in keywords):
                return path
            waiting += [((*path, key), value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [((*path, str(i)), value) for i, value in enumerate(node)]
    return None
