"""The limits beside a result: how much memory they are measured with, and what is said where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from qanat.bench.bounds import READ_SHARE_OF_MEMORY, measured_limits
from qanat.kernels.native import limits, module


def test_the_measurement_takes_a_share_of_what_is_available_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not module.is_built():
        pytest.skip(module.why_not())
    monkeypatch.setattr(limits, "RATE_TIME_S", 0.001)
    (tmp_path / "proc").mkdir()
    for mib in (8, 16):
        (tmp_path / "proc" / "meminfo").write_text(f"MemTotal: 67108864 kB\nMemAvailable: {mib * 1024} kB\n")
        found, said = measured_limits(tmp_path)
        assert found is not None and said == []
        assert found.read_size_bytes == pytest.approx(mib * 2**20 * READ_SHARE_OF_MEMORY, rel=0.2)
