"""What is measured on every engine, and what an engine is to the one who measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True)
class Workload:
    """A batch of equal requests.

    Attributes:
        name: for the table.
        phase: `DECODE` counts the tokens generated after the first of each request, `PREFILL` the prompts' tokens until
            then.
        batch_size: requests.
        input_len, output_len: tokens of each.
    """

    name: str
    phase: str
    batch_size: int
    input_len: int
    output_len: int


WORKLOADS = (
    Workload("decode, batch 1", DECODE, 1, 32, 64),
    Workload("decode, batch 16", DECODE, 16, 32, 32),
    Workload("prefill 512", PREFILL, 1, 512, 1),
)


class Peer(Protocol):
    """An engine with one model in one format.

    Attributes:
        name: for the table.
        weight_bytes: of the format, read once in each decode step.
        is_integer: whether matrices are multiplied in 8-bit integers.
    """

    name: str
    weight_bytes: int
    is_integer: bool

    def tokens_per_s(self, workload: Workload) -> float:
        """Runs the workload once."""

    def close(self) -> None:
        """Ends what was started."""


class MissingPeerError(Exception):
    """An engine that is not installed here; says what is missing."""
