"""Whether every reference in a JSON schema leads somewhere, for schemas that are followed as far as they can be.

Where the rest of a schema cannot be followed to the letter, something wider can stand in for it. For a reference to
nowhere nothing can: nobody knows what was meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from qanat.structured.schema_paths import Path, find_reference, refuse, target_of

_DATA = frozenset({"enum", "const", "default", "examples", "example"})
"""Keywords that hold values, in which a `$ref` is nothing special."""
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords that hold schemas under names of the client's."""
_SHELVES = frozenset({"$defs", "definitions"})
"""Keywords whose schemas count only where a reference leads to them."""
_NAMES = ("$id", "id", "$anchor")


def check_references(root: Any) -> None:
    """Follows every reference that can be met from the root; takes time in proportion to the schema.

    Raises:
        StructuredOutputError: one leads nowhere, or out of the schema.
    """
    waiting: list[tuple[Path, Any]] = [((), root)]
    seen: set[Path] = {()}
    names: dict[str, Path] | None = None
    while waiting:
        path, node = waiting.pop()
        waiting += _parts(path, node)
        reference = node.get("$ref") if isinstance(node, Mapping) else None
        if not isinstance(reference, str):
            continue
        if not (reference == "#" or reference.startswith("#/")) and names is None:
            names = _named(root)
        target = _target(root, reference, (*path, "$ref"), names or {})
        if target not in seen:
            seen.add(target)
            waiting.append((target, target_of(root, target)))


def _parts(path: Path, node: Any) -> Iterable[tuple[Path, Any]]:
    """What within a schema is schemas too."""
    if isinstance(node, list):
        return [((*path, str(i)), value) for i, value in enumerate(node)]
    if not isinstance(node, Mapping):
        return []
    parts: list[tuple[Path, Any]] = []
    for keyword, value in node.items():
        if keyword in _NAMED_SCHEMAS and isinstance(value, Mapping):
            parts += [((*path, keyword, name), schema) for name, schema in value.items()]
        elif keyword not in _DATA and keyword not in _SHELVES and isinstance(value, Mapping | list):
            parts.append(((*path, keyword), value))
    return parts


def _target(root: Any, reference: str, path: Path, names: Mapping[str, Path]) -> Path:
    """As `find_reference`, with names looked up where all have been collected."""
    base, _, fragment = reference.partition("#")
    if not base and (not fragment or fragment.startswith("/")):
        return find_reference(root, reference, path)
    start = names.get(base, names.get(f"{base}#")) if base else ()
    if start is not None and fragment and not fragment.startswith("/"):
        start, fragment = names.get(fragment), ""
    if start is None:
        raise refuse(
            path, f"{reference!r} is not in this schema, and others are not fetched; put it under $defs"
        )
    return find_reference(root, f"#{fragment}", path) if fragment else start


def _named(root: Any) -> dict[str, Path]:
    """Where each name stands, the first of equal ones."""
    names: dict[str, Path] = {}
    waiting: list[tuple[Path, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, Mapping):
            for keyword in _NAMES:
                if isinstance(node.get(keyword), str):
                    names.setdefault(node[keyword], path)
            waiting += [((*path, key), value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [((*path, str(i)), value) for i, value in enumerate(node)]
    return names
