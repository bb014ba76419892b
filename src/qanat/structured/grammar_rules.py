"""Bounds on how ambiguous a client's own rules may be: the more they are, the longer takes what the parser counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from qanat.core.errors import StructuredOutputError

MAX_MENTIONS = 128
"""Of one rule within rules that lead back to it: each makes every one of the parser's steps longer."""

_DEFINITION = re.compile(r"^[ \t]*[?!]?([a-z_][\w.-]*)(?=[^\n|:]*:)", re.MULTILINE)
_NAME = re.compile(r"[a-z_][\w-]*")


def check_rules(bare: str) -> None:
    """Checks that no rule is mentioned too often by what it leads to.

    Args:
        bare: grammar in Lark without texts, expressions and comments.

    Raises:
        StructuredOutputError: one is.
    """
    mentions = _mentions(bare)
    totals: Counter[str] = Counter()
    for counts in mentions.values():
        totals.update(counts)
    often = [name for name, total in totals.items() if total > MAX_MENTIONS and name in mentions]
    users: dict[str, list[str]] = {name: [] for name in mentions}
    for name, counts in mentions.items():
        for mentioned in counts:
            if mentioned in users:
                users[mentioned].append(name)
    for name in often:
        around = _reached(mentions, name) & _reached(users, name)
        if sum(mentions[other][name] for other in around) > MAX_MENTIONS:
            raise StructuredOutputError(
                f"The grammar's rule {name} is mentioned more than {MAX_MENTIONS} times by rules that it leads to. "
                "Simplify it.",
                param="grammar",
            )


def _mentions(bare: str) -> dict[str, Counter[str]]:
    """For each rule, how often it mentions which names."""
    mentions: dict[str, Counter[str]] = {}
    found = list(_DEFINITION.finditer(bare))
    for i, rule in enumerate(found):
        body = bare[rule.end() : found[i + 1].start() if i + 1 < len(found) else len(bare)]
        name = rule[1].partition(".")[0]
        mentions.setdefault(name, Counter()).update(_NAME.findall(body))
    return mentions


def _reached(links: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Rules that links lead to from this one; itself only if they lead back."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in links.get(waiting.pop(), ()):
            if name in links and name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached
