r"""Keys of objects: a name that a schema lists must not come in another spelling, such as `\u0061` for `a`.

The grammar library spells listed names in one way and lets further ones come in any, so that a further one may be a
listed one. Names that a pattern allows come without escapes that need not be, and never are listed ones. So what may
come beside listed names is said by patterns here.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from typing import Any

from qanat.structured.schema_logic import Schema, nodes_of
from qanat.structured.schema_paths import refuse
from qanat.structured.xml_safe import shared_nodes

MAX_EXCLUDED = 50_000
"""Sum over an object's listed names of their squared lengths, where a pattern has to exclude each of them."""

_ANY_KEY = ""
_PREFIX = re.compile(r"^\^([\w:@/~ -]+)(\$?)$")
"""A pattern that only says what a name begins with, or what it is."""
_SPELLED_TWICE = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that have more than one spelling even where there are no further escapes."""

_UNTOLD = re.compile(r'["\\]')
"""Characters that the library takes for any excluded one, as JSON escapes them."""


def with_plain_keys(schema: Schema) -> Schema:
    """The same schema, in which no key can stand for another one in disguise.

    Args:
        schema: prepared; stays as it is.

    Raises:
        StructuredOutputError: the keys beside patterns, or beside schemas for further properties, cannot be told apart
            where several schemas speak about the same object.
    """
    if isinstance(schema, bool):
        return schema
    plain = copy.deepcopy(schema)
    shared = shared_nodes(plain)
    for node in list(nodes_of(plain)):
        others = node.get("additionalProperties", True)
        if others is not False and (node.get("properties") or node.get("patternProperties")):
            _close(node, others, is_shared=id(node) in shared)
    return plain


def _close(node: dict[str, Any], others: Schema, *, is_shared: bool) -> None:
    patterns = node.get("patternProperties", {})
    is_free = others is True or others == {}
    listed = node.get("properties", {})
    ends = {name: True for name in listed if not is_free or patterns or _SPELLED_TWICE.search(name)}
    prefixes = [_PREFIX.match(pattern) for pattern in patterns]
    ends |= {prefix[1]: bool(prefix[2]) for prefix in prefixes if prefix}
    if is_shared and (ends or patterns):
        raise refuse(
            (),
            "patternProperties, and a schema under additionalProperties, cannot be enforced beside other schemas "
            "for the same object; set additionalProperties to false",
        )
    node["additionalProperties"] = False
    is_telling = all(prefixes) and sum(len(text) ** 2 for text in ends) <= MAX_EXCLUDED
    if is_telling and not any(_UNTOLD.search(text) for text in ends):
        key = _other_than(ends) if ends else _ANY_KEY
        node["patternProperties"] = {**patterns, key: others}


def _other_than(ends: dict[str, bool]) -> str:
    """A regular expression of all texts but these (True), and but those that begin with one of these (False)."""
    following: dict[str, set[str]] = {"": set()}
    for text in ends:
        for i, character in enumerate(text):
            following.setdefault(text[:i], set()).add(character)
            following.setdefault(text[: i + 1], set())
    closed = {text for text, is_whole in ends.items() if not is_whole}
    options = []
    for start, characters in following.items():
        if any(start[:i] in closed for i in range(len(start) + 1)):
            continue
        go_on = f"[^{_escaped(sorted(characters))}]" if characters else "(?s:.)"
        further = f"{go_on}(?s:.*)"
        options.append(_escaped(start) + (further if start in ends else f"(?:{further})?"))
    return f"^(?:{'|'.join(options)})$"


def _escaped(characters: Iterable[str]) -> str:
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):X}}}" for c in characters)
