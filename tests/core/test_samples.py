from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.samples import Samples

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@given(VALUES, st.sampled_from([0, 10, 25, 50, 75, 90, 99, 100]))
def test_percentiles_are_numpys(values: list[float], percent: int) -> None:
    assert Samples.of(values).percentile(percent) == pytest.approx(numpy.percentile(values, percent))


def test_spread_is_the_share_between_the_quartiles() -> None:
    assert Samples.of([1.0, 2.0, 3.0, 4.0, 5.0]).spread == pytest.approx(2 / 3)
    assert Samples.of([4.0]).spread == 0
    assert Samples.of([0.0, 0.0]).spread == 0


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing"):
        Samples.of([])
