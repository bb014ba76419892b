from __future__ import annotations

from dataclasses import replace

import pytest

from qanat.core.samples import Samples
from qanat.kernels.native.limits import FLOAT, INT8, Limits, measure_limits
from qanat.kernels.native.module import instruction_sets, native

MIB = 2**20


@pytest.fixture(scope="module")
def limits() -> Limits:
    return measure_limits(4 * MIB, num_repeats=2)


def test_every_float_instruction_set_has_a_rate(limits: Limits) -> None:
    measured = {name for name, operands in limits.macs_per_s if operands == FLOAT}
    assert measured <= {name for name, _ in native().rate_loops()}
    with_kernels = {"scalar", "avx2", "avx512", "neon"}
    assert set(instruction_sets()) & with_kernels <= measured | {"scalar"}
    assert all(samples.median > 0 for samples in limits.macs_per_s.values())


def test_memory_is_read_at_a_rate_that_a_machine_can_have(limits: Limits) -> None:
    assert limits.read_size_bytes == 4 * MIB
    assert len(limits.read_bytes_per_s.values) == 2
    assert 1e6 < limits.read_bytes_per_s.median < 1e14


def test_an_instruction_set_has_its_own_rate_or_that_of_the_one_below() -> None:
    rates = {("a", FLOAT): 1.0, ("a", INT8): 9.0, ("b", FLOAT): 3.0, ("c", INT8): 7.0}
    limits = Limits(1, 1, Samples.of([1.0]), {key: Samples.of([rate]) for key, rate in rates.items()})
    assert limits.best_rate(FLOAT, "a") == 1
    assert limits.best_rate(FLOAT, "c") == limits.best_rate(FLOAT) == limits.best_rate(FLOAT, "unknown") == 3
    assert limits.best_rate(INT8, "b") == 9
    assert limits.best_rate(INT8, "c") == 7
    assert limits.best_rate(INT8) == 9
    assert replace(limits, macs_per_s={}).best_rate(FLOAT) == 0


def test_every_instruction_set_has_an_int8_rate_of_its_own(limits: Limits) -> None:
    measured = {name for name, operands in limits.macs_per_s if operands == INT8}
    assert set(instruction_sets()) <= measured


def test_two_measurements_become_one(limits: Limits) -> None:
    both = limits.joined(limits)
    assert len(both.read_bytes_per_s.values) == 2 * len(limits.read_bytes_per_s.values)
    assert both.macs_per_s.keys() == limits.macs_per_s.keys()


def test_a_rate_of_a_set_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no loop of the instruction set none"):
        native().multiply_add_rate("none", True, 0.001)
