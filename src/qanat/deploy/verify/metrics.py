"""The few of an engine's Prometheus metrics that checks look at."""

from __future__ import annotations

import math
from collections.abc import Mapping

from qanat.deploy.prometheus import read_exposition

RUNNING = "vllm:num_requests_running"
NUM_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
NUM_ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"


def read_metrics(text: str) -> Mapping[str, float]:
    """Sums of all samples by name; what is no finite number is left out."""
    finite = {
        name: [sample.value for sample in samples if math.isfinite(sample.value)]
        for name, samples in read_exposition(text).samples.items()
    }
    return {name: sum(values) for name, values in finite.items() if values}
