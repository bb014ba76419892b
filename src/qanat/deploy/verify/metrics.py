"""The few of an engine's Prometheus metrics that checks look at."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

RUNNING = "vllm:num_requests_running"
NUM_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
NUM_ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)(?:\s+-?\d+)?\s*$")


def read_metrics(text: str) -> Mapping[str, float]:
    """Sums of all samples by name; lines that are no samples are left out, and so are values that are no numbers."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if match := _SAMPLE.match(line):
            try:
                value = float(match[2])
            except ValueError:
                continue
            if math.isfinite(value):
                sums[match[1]] = sums.get(match[1], 0.0) + value
    return sums
