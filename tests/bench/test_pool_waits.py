from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.pool_waits import waiting_too_long
from qanat.kernels.native.module import PoolWaits, is_built
from tests.house.checkout import ROOT


def waits(wait_s: float) -> PoolWaits:
    return PoolWaits(num_jobs=10, num_shared=10, elapsed_s=1.0, wait_s=wait_s, busy_s=1.0)


def test_an_op_that_waits_for_more_than_a_twentieth_is_named() -> None:
    assert waiting_too_long({"linear": waits(0.11), "norm": waits(0.09)}, elapsed_s=2.0) == ["linear"]


@pytest.mark.slow
@pytest.mark.skipif(not is_built(), reason="the pool is the native kernels'")
def test_the_exit_code_says_whether_any_op_waits_too_long() -> None:
    command = [sys.executable, "benchmarks/pool_waits.py", "--tokens", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["op", "jobs/step", "shared", "of", "step", "waits", "busy"], done.stderr
    assert len(lines) > 2
    assert done.returncode == (1 if lines[-1].startswith("More than 5%") else 0)
