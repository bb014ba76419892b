"""What this machine can do at most, measured: every benchmark prints its results beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from qanat.core.huge_pages import map_huge_pages
from qanat.core.samples import Samples
from qanat.kernels.native.module import native

INT8, FLOAT = "int8", "float32"
"""What a multiply-add computes with."""

DEFAULT_READ_BYTES = 512 * 2**20
NUM_REPEATS = 5
RATE_TIME_S = 0.01
_GRANULE = 1024


@dataclass(frozen=True)
class Limits:
    """Rates of all threads together; each is measured several times.

    Attributes:
        num_threads: that measured.
        read_size_bytes: what was read in turn; little of it can be in a cache where it is larger than that.
        read_bytes_per_s: of memory, on huge pages where the system gives them.
        macs_per_s: multiply-adds by (instruction set, operands); `INT8` or `FLOAT`.
    """

    num_threads: int
    read_size_bytes: int
    read_bytes_per_s: Samples
    macs_per_s: Mapping[tuple[str, str], Samples]

    def best_rate(self, operands: str, instruction_set: str = "") -> float:
        """Multiply-adds per second; 0 where nothing was measured.

        Args:
            operands: `INT8` or `FLOAT`.
            instruction_set: whose rate: its own, or where it adds nothing for these operands, that of the highest below
                it that does. Empty, or a name that is not known: the highest of all.
        """
        names = list(dict.fromkeys(name for name, _ in self.macs_per_s))
        rates = {
            name: self.macs_per_s[name, operands].median
            for name in names
            if (name, operands) in self.macs_per_s
        }
        if instruction_set not in names:
            return max(rates.values(), default=0.0)
        below = names[: names.index(instruction_set) + 1]
        return next((rates[name] for name in reversed(below) if name in rates), 0.0)

    def joined(self, later: Limits) -> Limits:
        """Both measurements together: conditions change while a benchmark runs."""
        rates = {
            key: Samples(samples.values + later.macs_per_s[key].values)
            for key, samples in self.macs_per_s.items()
        }
        reads = Samples(self.read_bytes_per_s.values + later.read_bytes_per_s.values)
        return replace(self, read_bytes_per_s=reads, macs_per_s=rates)


def measure_limits(
    read_size_bytes: int = DEFAULT_READ_BYTES, num_repeats: int = NUM_REPEATS, names: Sequence[str] = ()
) -> Limits:
    """Measures, with the threads that the kernels are configured for.

    Args:
        read_size_bytes: memory that is read; as much is allocated meanwhile.
        num_repeats: of each measurement; they take turns, so that a disturbance meets them all.
        names: instruction sets to measure; all where empty.

    Raises:
        ConfigError: the native kernels are not built.
    """
    module = native()
    size_bytes = max(read_size_bytes // _GRANULE, 1) * _GRANULE
    loops = [(name, operands) for name, operands in module.rate_loops() if not names or name in names]
    memory = torch.frombuffer(map_huge_pages(size_bytes), dtype=torch.uint8).fill_(1)
    start = memory.data_ptr()
    module.read_seconds(start, size_bytes)
    reads: list[float] = []
    rates: dict[tuple[str, str], list[float]] = {loop: [] for loop in loops}
    for _ in range(num_repeats):
        reads.append(size_bytes / module.read_seconds(start, size_bytes))
        for name, operands in loops:
            rates[name, operands].append(module.multiply_add_rate(name, operands == INT8, RATE_TIME_S))
    return Limits(
        num_threads=module.num_threads(),
        read_size_bytes=size_bytes,
        read_bytes_per_s=Samples.of(reads),
        macs_per_s={loop: Samples.of(values) for loop, values in rates.items()},
    )
