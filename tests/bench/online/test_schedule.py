from __future__ import annotations

import math
import statistics

import pytest

from qanat.bench.online.schedule import Arrivals
from qanat.core.errors import ConfigError


def gaps(arrivals: Arrivals, count: int = 4000, seed: int = 0) -> list[float]:
    times = arrivals.times_s(count, seed)
    return [after - before for before, after in zip([0.0, *times], times, strict=False)]


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (4.0, 0.5), (0.25, 2.0), (math.inf, 0.0)])
def test_gaps_have_the_rate_and_the_variation_of_the_burstiness(burstiness: float, variation: float) -> None:
    found = gaps(Arrivals(rate=20, burstiness=burstiness))
    assert sum(found) == pytest.approx(4000 / 20)
    assert statistics.pstdev(found) / statistics.fmean(found) == pytest.approx(variation, abs=0.1)
    assert min(found) >= 0


def test_the_schedule_follows_from_the_seed() -> None:
    arrivals = Arrivals(rate=5)
    assert arrivals.times_s(50, 1) == arrivals.times_s(50, 1)
    assert arrivals.times_s(50, 1) != arrivals.times_s(50, 2)
    assert Arrivals().times_s(3, 0) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("ramp", "middle"), [("linear", 6.0), ("exponential", math.sqrt(20))])
def test_a_ramp_goes_from_one_rate_to_the_other(ramp: str, middle: float) -> None:
    arrivals = Arrivals(ramp=ramp, ramp_start=2, ramp_end=10, burstiness=math.inf)
    found = gaps(arrivals, 1001)
    assert 1 / found[0] == pytest.approx(2, rel=0.01)
    assert 1 / found[500] == pytest.approx(middle, rel=0.01)
    assert 1 / found[-1] == pytest.approx(10)
    assert all(math.isfinite(gap) for gap in gaps(Arrivals(ramp="linear", ramp_start=0, ramp_end=5), 20))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0.0},
        {"rate": -1.0},
        {"burstiness": 0.0},
        {"rate": 5.0, "ramp": "linear", "ramp_start": 1, "ramp_end": 2},
        {"ramp": "linear", "ramp_start": 3, "ramp_end": 2},
        {"ramp": "exponential", "ramp_start": 0, "ramp_end": 2},
    ],
)
def test_what_is_no_schedule_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Arrivals(**wrong)  # type: ignore[arg-type]
