"""The plan that a host is checked for: a file, or a rendered folder."""

from __future__ import annotations

from pathlib import Path

from qanat.core.errors import ConfigError
from qanat.deploy.plan.files import decode_plan
from qanat.deploy.plan.model import Plan

PLAN_NAME = "plan.yaml"


def read_plan(word: str) -> Plan:
    """The plan in a file, or in the plan.yaml of a folder.

    Raises:
        ConfigError: there is none, or it is none.
    """
    path = Path(word)
    if path.is_dir():
        path = path / PLAN_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{path} cannot be read: {reason}") from None
    return decode_plan(text, str(path))
