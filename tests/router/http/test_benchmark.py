"""benchmarks/router.py still runs, and every answer on its way is whole; how fast they were is not judged here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset program")
def test_every_target_but_the_peer_is_measured_without_an_error(tmp_path: Path) -> None:
    pytest.importorskip("uvloop")
    file = tmp_path / "figures.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.router",
        "--rounds",
        "1",
        "--seconds",
        "0.5",
        "--json",
        str(file),
    ]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=250)
    figures = msgspec.json.decode(file.read_bytes())
    assert list(figures["capacity"]) == ["direct", "plain", "router", "pair"]
    for name, mine in figures["capacity"].items():
        assert mine["num_errors"] == 0, (name, done.stdout)
        assert mine["requests_per_s"] > 0 and mine["tokens_per_s"] > 0
    assert list(figures["added"]) == ["plain", "router", "pair"]
    assert "the engine sees that a client left" in done.stdout
