"""What `qanat deploy preflight` looks at on a host."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.entry import Entry


class HostCheck(Entry, frozen=True, kw_only=True):
    """A check of `qanat deploy preflight`: `name` is its id; `why` and `fix` are one sentence each."""

    title: str
    why: str
    fix: str


class HostSetting(Entry, frozen=True, kw_only=True):
    """A kernel setting: `name` as sysctl spells it, or the path of its file where sysctl has none.

    `paths` are its files, the newest kernel's last; the value is right if it is equal to, at most, or at least `value`.
    """

    paths: tuple[str, ...]
    is_right_if: Literal["equal", "at_most", "at_least"]
    value: int
    why: str
    fix: str
