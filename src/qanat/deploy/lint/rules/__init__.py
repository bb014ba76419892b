"""The checks, registered by the ids of their rules in the knowledge base."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Imports every module of checks; each registers what it holds."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
