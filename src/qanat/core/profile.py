"""What there is to say about a profile that has ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProfileReport:
    """A profile and its files.

    Attributes:
        files: absolute paths of what was written; none if no step was recorded.
        num_steps: steps that were recorded.
        num_op_calls: calls of ops that were recorded.
        duration_s: seconds from the start to the end of the recording.
        ended_by: "request", or the bound that ended it: "max_iterations", "max_duration_s" or "max_trace_bytes".
    """

    files: list[str]
    num_steps: int
    num_op_calls: int
    duration_s: float
    ended_by: str
