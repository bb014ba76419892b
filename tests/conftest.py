"""For all tests."""

from __future__ import annotations

import random
import sys

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does, so it decides nothing.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _same_random_numbers_every_time() -> None:
    """A test that fails once fails again."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
