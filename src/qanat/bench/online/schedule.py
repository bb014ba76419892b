"""When each request is to be sent: made before the run, the same for the same seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate

from qanat.core.errors import ConfigError

LINEAR, EXPONENTIAL = "linear", "exponential"


@dataclass(frozen=True)
class Arrivals:
    """How requests arrive.

    Attributes:
        rate: requests a second; infinite sends all at once.
        burstiness: shape of the gamma distribution of the times between them: 1 is a Poisson process, less is
            burstier, infinite is an even distance.
        ramp: linear or exponential growth from `ramp_start` to `ramp_end` requests a second; empty for a fixed rate.
        ramp_start: rate of the first request.
        ramp_end: rate of the last.
    """

    rate: float = math.inf
    burstiness: float = 1.0
    ramp: str = ""
    ramp_start: float = 0.0
    ramp_end: float = 0.0

    def __post_init__(self) -> None:
        if not self.rate > 0:
            raise ConfigError(f"--request-rate {self.rate:g}: more than 0, or inf.", param="--request-rate")
        if not self.burstiness > 0:
            raise ConfigError(f"--burstiness {self.burstiness:g}: more than 0.", param="--burstiness")
        if not self.ramp:
            return
        if not math.isinf(self.rate):
            raise ConfigError(
                "--ramp-up-strategy takes its rates from --ramp-up-start-rps and --ramp-up-end-rps: leave "
                "--request-rate out.",
                param="--request-rate",
            )
        if self.ramp_start < 0 or self.ramp_end <= 0 or self.ramp_start > self.ramp_end:
            raise ConfigError(
                "--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps, the first from 0 on and not "
                "above the second.",
                param="--ramp-up-strategy",
            )
        if self.ramp == EXPONENTIAL and self.ramp_start == 0:
            raise ConfigError(
                "--ramp-up-strategy exponential cannot start at 0: --ramp-up-start-rps 1.",
                param="--ramp-up-start-rps",
            )

    @property
    def is_at_once(self) -> bool:
        """True if nothing but the bound of concurrent requests holds them back."""
        return math.isinf(self.rate) and not self.ramp

    def rate_at(self, share: float) -> float:
        """Requests a second after this share of the requests."""
        if self.ramp == LINEAR:
            return self.ramp_start + (self.ramp_end - self.ramp_start) * share
        if self.ramp == EXPONENTIAL:
            return float(self.ramp_start * (self.ramp_end / self.ramp_start) ** share)
        return self.rate

    def times_s(self, count: int, seed: int) -> list[float]:
        """Seconds from the start for each request, in order.

        With a fixed rate the last request is sent after count / rate seconds exactly, as vLLM's command stretches
        its draws too.
        """
        if self.is_at_once:
            return [0.0] * count
        source = random.Random(f"arrivals {seed}")
        gaps = []
        for number in range(count):
            # A rate of 0 would never send: the ramp begins one request above it.
            share = (number or 0.5) / max(count - 1, 1)
            gap = 1 / self.rate_at(share)
            if not math.isinf(self.burstiness):
                gap = source.gammavariate(self.burstiness, gap / self.burstiness)
            gaps.append(gap)
        if not self.ramp:
            stretch = count / self.rate / math.fsum(gaps)
            gaps = [gap * stretch for gap in gaps]
        return list(accumulate(gaps))
