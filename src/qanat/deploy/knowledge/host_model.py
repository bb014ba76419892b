"""The kinds of entries about hosts: what is checked, drivers, names of chips, tensors of quantised weights."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.model import Entry


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


class Threshold(Entry, frozen=True, kw_only=True):
    """A number that a check compares with, and its unit."""

    value: float
    unit: str
    about: str


class DriverSupport(Entry, frozen=True, kw_only=True):
    """Drivers (HDK) that a series of CANN works with; `name` is the series ("8.5").

    `oldest` is the oldest that is listed for it, `recommended` the oldest that is known to serve graphs well; both
    count for `chips` only, because other chips number their drivers otherwise.
    """

    oldest: str
    recommended: str
    chips: tuple[str, ...]


class DeviceName(Entry, frozen=True, kw_only=True):
    """How npu-smi names a chip: `name` is a regular expression for the whole name, `chip` an entry of the chips."""

    chip: str


class QuantisedType(Entry, frozen=True, kw_only=True):
    """A type in a quantisation description: dtypes of the weight, and suffixes of tensors that belong to it."""

    dtypes: tuple[str, ...]
    companions: tuple[str, ...]
