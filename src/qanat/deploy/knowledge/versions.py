"""Versions of vllm-ascend and vLLM: reading, order, ranges, and what is known between two samples."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from enum import Enum
from functools import total_ordering
from typing import NamedTuple

_PATTERN = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:\.?rc(\d+))?(?:\.post(\d+))?")
_TAG = re.compile(r"(v?\d+\.\d+(?:\.\d+)?(?:\.?rc\d+)?(?:\.post\d+)?)((?:-[A-Za-z0-9_.]+)*)")
_NO_CANDIDATE = 10**6


@total_ordering
class Version(NamedTuple):
    """A release; a release candidate comes before the release, a post-release after it."""

    major: int
    minor: int
    patch: int
    candidate: int = _NO_CANDIDATE
    post: int = 0

    @property
    def base(self) -> Version:
        """The plain release, without candidate and post-release; equals the version of the vLLM it pairs with."""
        return Version(self.major, self.minor, self.patch)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.candidate != _NO_CANDIDATE:
            text += f"rc{self.candidate}"
        return text + (f".post{self.post}" if self.post else "")


@functools.lru_cache(maxsize=4096)
def parse_version(text: str) -> Version | None:
    """Reads "v0.18.0rc1", "0.18.0.rc1" or "0.23.0.post1"; None for anything else."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        return None
    major, minor, patch, candidate, post = match.groups()
    number = int(candidate) if candidate else _NO_CANDIDATE
    return Version(int(major), int(minor), int(patch or 0), number, int(post or 0))


def must_parse(text: str) -> Version:
    """Reads a version that is known to be one.

    Raises:
        ValueError: it is none.
    """
    version = parse_version(text)
    if version is None:
        raise ValueError(f"{text!r} is no version; expected something like 0.18.0rc1")
    return version


class ImageTag(NamedTuple):
    """An image tag taken apart: "v0.18.0rc1-a3-openeuler" is version 0.18.0rc1 with suffixes ("a3", "openeuler")."""

    version: Version
    suffixes: tuple[str, ...]


def parse_image(text: str) -> ImageTag | None:
    """Reads an image reference, a tag or a bare version; None if no version can be read, or it is no image of vllm."""
    last = text.strip().split("@")[0].rsplit("/", 1)[-1]
    name, _, tag = last.rpartition(":")
    if name and "vllm" not in name.lower():
        return None
    match = _TAG.fullmatch(tag)
    version = parse_version(match.group(1)) if match else None
    if match is None or version is None:
        return None
    return ImageTag(version, tuple(part for part in match.group(2).split("-") if part))


class Presence(Enum):
    """Whether a version has a name: samples are sparse, so between two of them it is not known."""

    PRESENT = "present"
    NOT_YET = "not yet"
    GONE = "gone"
    UNSURE = "unsure"


class Timeline:
    """The versions at which a source was read, in order."""

    def __init__(self, samples: Sequence[str]) -> None:
        self.samples = tuple(sorted(must_parse(sample) for sample in samples))

    def presence(self, version: Version, since: str | None, until: str | None) -> Presence:
        """Whether `version` has a name first seen in the sample `since` and last seen in the sample `until`.

        A version between the last sample without the name and the first with it is UNSURE, and so is one after the
        newest sample once that sample is passed.
        """
        first = must_parse(since) if since else self.samples[0]
        last = must_parse(until) if until else self.samples[-1]
        if first <= version <= last:
            return Presence.PRESENT
        if version < first:
            earlier = [sample for sample in self.samples if sample < first]
            if earlier and version <= earlier[-1]:
                return Presence.NOT_YET
            return Presence.UNSURE
        later = [sample for sample in self.samples if sample > last]
        if later and version >= later[0]:
            return Presence.GONE
        return Presence.UNSURE


def is_in_range(version: Version, since: str | None, until: str | None) -> bool:
    """Whether `version` lies in a range whose ends, where given, are included.

    An end that is a plain release stands for its candidates and post-releases as well.
    """
    if since is not None:
        first = must_parse(since)
        if (version.base if first == first.base else version) < first:
            return False
    if until is not None:
        last = must_parse(until)
        return (version.base if last == last.base else version) <= last
    return True
