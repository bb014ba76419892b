"""What every entry of the knowledge base has: a name, where the fact comes from, and, of many, a life."""

from __future__ import annotations

from typing import Literal

import msgspec

Confidence = Literal["source", "documentation", "issue", "tested", "computed", "unverified"]
"""How a fact was learnt: read in source at the tag, documented, told in an issue thread, tried, computed, or not
checked at all."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every entry has: a name and where the fact comes from. A file may state both once for all entries."""

    name: str
    source: str
    confidence: Confidence


class Lifetime(Entry, frozen=True, kw_only=True):
    """An entry that not every version has.

    `since` is the first sampled version that has it, `until` the last one; None is the first or the last sample of its
    file.
    """

    since: str | None = None
    until: str | None = None
