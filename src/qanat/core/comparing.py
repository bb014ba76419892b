"""Whether two processes of a service, maybe on two hosts, are alike, and in what not."""

from __future__ import annotations

import platform
from collections.abc import Mapping

from qanat.core.printable import quoted


def python_version() -> str:
    """Of this process; the patch level changes no answer."""
    return ".".join(platform.python_version_tuple()[:2])


def differences(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """What another process has otherwise, as "name theirs instead of ours"."""
    names = [*own, *(name for name in other if name not in own)]
    return [
        f"{quoted(name)} {quoted(other.get(name, 'unknown'))} instead of {own.get(name, 'unknown')}"
        for name in names
        if own.get(name) != other.get(name)
    ]
