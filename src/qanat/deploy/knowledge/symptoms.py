"""What running services do wrong when they are asked."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.model import Entry


class ServiceSymptom(Entry, frozen=True, kw_only=True):
    """What a running service does wrong when it is asked.

    `level` is the outcome of the check that sees it, `meaning` what is usually behind it, `advice` what to do.
    """

    level: Literal["warn", "fail"]
    meaning: str
    advice: str
