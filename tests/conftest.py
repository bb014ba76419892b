"""For all tests."""

from __future__ import annotations

import atexit
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does, so it decides nothing; and every run has the same
# examples, so that a change is judged by what it changes. `--hypothesis-profile=search` draws others each time.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("any machine", settings.get_profile("search"), derandomize=True)
settings.load_profile("any machine")

# Packed weights of the models that tests serve are kept for the session only, and nobody's own are read.
os.environ["QANAT_CACHE_DIR"] = tempfile.mkdtemp(prefix="qanat-tests-")
atexit.register(shutil.rmtree, os.environ["QANAT_CACHE_DIR"], ignore_errors=True)

# A shell that runs the suite in the background (`&`, nohup) has it ignore these, and whoever it starts inherits that:
# a test that interrupts a process would wait for ever, as the process does what it was told.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _same_random_numbers_every_time() -> None:
    """A test that fails once fails again."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that runs in this process sets up logging for all of it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def _kernels_as_they_were() -> Iterator[None]:
    """Kernels are chosen for the whole process; what one module chooses is not what the next one starts with."""
    registry = sys.modules.get("qanat.kernels.registry")
    before = {op: op.chosen.name for op in registry.all_ops()} if registry else {}
    yield
    registry = sys.modules.get("qanat.kernels.registry")
    for op in registry.all_ops() if registry else ():
        op.select(before.get(op, registry.REFERENCE))
