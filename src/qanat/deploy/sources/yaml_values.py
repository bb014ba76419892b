"""Nodes of YAML as values with places, and as JSON."""

from __future__ import annotations

import json
import re

import yaml

from qanat.deploy.sources.values import Span, Value

MAX_DEPTH = 60
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)|\$\(([A-Za-z_]\w*)\)")

Node = yaml.nodes.Node


ENDLESS = 10**12
"""Nodes of an alias that stands for what it is in."""


def expanded_size(node: Node, sizes: dict[int, int]) -> int:
    """How many nodes a walk visits that goes through every alias; `sizes` gets one entry for each written node."""
    known = sizes.get(id(node))
    if known is not None:
        return known
    sizes[id(node)] = ENDLESS
    parts = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    sizes[id(node)] = 1 + sum(expanded_size(part, sizes) for part in parts)
    return sizes[id(node)]


def members_of(node: Node | None) -> dict[str, Node]:
    """The members of a mapping by their keys; empty for anything else."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, yaml.ScalarNode)}


def merged_members(node: Node, depth: int = 0) -> dict[str, Node]:
    """The members of a mapping, with those that `<<` brings; its own count."""
    found: dict[str, Node] = {}
    own = members_of(node)
    brought = own.pop("<<", None)
    several = brought.value if isinstance(brought, yaml.SequenceNode) else [brought]
    for one in reversed(several if depth < MAX_DEPTH else []):
        found |= merged_members(one, depth + 1) if isinstance(one, yaml.MappingNode) else {}
    return found | own


def scalar_value(node: yaml.ScalarNode, code: Value) -> Value:
    """A scalar with the places of its characters; escapes and folded lines are placed as a whole."""
    start, end = node.start_mark.index, node.end_mark.index
    written = code.text[start:end]
    spans: list[Span] = []
    found = at = 0
    for match in re.finditer(r"\S+", node.value):
        index = written.find(match.group(), found)
        if index < 0:
            spans = []
            break
        found = index + len(match.group())
        if match.start() > at:
            inner = code.part(start + index - 1, start + index)
            spans.append(Span(at, match.start() - at, inner.place.start, inner.place.end))
        inner = code.part(start + index, start + found)
        spans += [
            Span(match.start() + one.start, one.length, one.source_start, one.source_end)
            for one in inner.spans
        ]
        at = match.end()
    place = code.place_of(start, max(start, len(written.rstrip()) + start))
    unknown = tuple(dict.fromkeys(a or b for a, b in VARIABLE.findall(node.value)))
    if not node.value or not spans:
        spans = [Span(0, len(node.value), place.start, place.end)] if node.value else []
    return Value(node.value, place, unknown, tuple(spans), code.source)


def as_json(node: Node, code: Value, at: int, depth: int = 0) -> tuple[str, list[Span]]:
    """YAML as JSON text whose scalars have places; `at` is where it begins in the whole."""
    if depth > MAX_DEPTH:
        return "null", []
    if isinstance(node, yaml.ScalarNode):
        is_text = node.tag.endswith(":str")
        text = json.dumps(node.value) if is_text else node.value.lower() or "null"
        place = code.place_of(node.start_mark.index, max(node.start_mark.index, node.end_mark.index))
        return text, [Span(at, len(text), place.start, place.end)]
    text, spans = ("[", []) if isinstance(node, yaml.SequenceNode) else ("{", list[Span]())
    for index, item in enumerate(node.value):
        text += ", " if index else ""
        parts = [item] if isinstance(node, yaml.SequenceNode) else list(item)
        for number, part in enumerate(parts):
            is_key = number == 0 and len(parts) == 2
            if is_key and isinstance(part, yaml.ScalarNode):
                part = yaml.ScalarNode("tag:yaml.org,2002:str", part.value, part.start_mark, part.end_mark)
            inner, places = as_json(part, code, at + len(text), depth + 1)
            text += inner + (": " if is_key else "")
            spans += places
    return text + ("]" if isinstance(node, yaml.SequenceNode) else "}"), spans
