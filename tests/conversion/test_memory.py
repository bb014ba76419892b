"""`qanat quantize` takes memory for some rows of a matrix, and not for the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.large_checkpoints import write_plain

MOST_BYTES = 150 * 2**20
"""Less than half of the checkpoint: rows in work, scales, and the part of its files that is mapped at a time."""

MEASURE = """
import sys
from pathlib import Path
import qanat.conversion.convert
from qanat.cli.main import main

def peak_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

before = peak_bytes()
code = main(["quantize", *sys.argv[1:], "--num-threads", "1"])
print()
print(code, peak_bytes() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure memory")
@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_a_conversion_takes_less_than_half_of_its_checkpoint(tmp_path: Path, scheme: str) -> None:
    write_plain(tmp_path / "plain")
    size_bytes = sum(file.stat().st_size for file in (tmp_path / "plain").glob("*.safetensors"))
    assert size_bytes > 2 * MOST_BYTES
    command = [
        sys.executable,
        "-c",
        MEASURE,
        str(tmp_path / "plain"),
        str(tmp_path / "out"),
        "--scheme",
        scheme,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    code, peak_bytes = map(int, done.stdout.splitlines()[-1].split())
    assert code == 0
    assert peak_bytes < MOST_BYTES, f"{peak_bytes / 2**20:.0f} MiB"
