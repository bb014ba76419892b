"""What is measured and how: everything that a run needs to know."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qanat.bench.client.recording import DEFAULT_BUDGET_BYTES
from qanat.bench.online.figures import Wanted
from qanat.bench.online.prompts.prompt import Dataset
from qanat.bench.online.schedule import Arrivals
from qanat.bench.online.target import Target

DEFAULT_TIMEOUT_S = 6 * 3600.0


@dataclass(frozen=True)
class ServeWish:
    """A run against a server.

    Attributes:
        target: where requests go.
        backend: API; a key of `bodies.ENDPOINTS`.
        dataset: the requests.
        arrivals: when they are sent.
        wanted: what the result shows.
        model: name in requests; None asks the server.
        model_id: name in the result; None takes `model`.
        tokenizer: folder of a tokenizer.json, for servers that have no /tokenize.
        tls: for https.
        max_concurrency: requests under way at most; 0 for no bound.
        num_warmups: requests before the run.
        sampling: fields of every request.
        extra: more fields of every request, before all others.
        ignores_eos: answers have the length that was asked for.
        is_streamed: answers come chunk by chunk.
        request_id_prefix: of X-Request-Id.
        ready_timeout_s: how long the server may take to become ready.
        timeout_s: for one request.
        turn_delay_s: between an answer and the next turn of a conversation.
        is_profiled: the server records a profile of the run.
        keeps_texts: the result needs what was said.
        budget_bytes: of memory for what comes in.
        keeps_trace_times: a trace's own times are used.
        metrics_interval_s: between readings of the server's metrics during the run; 0 for none.
    """

    target: Target
    backend: str
    dataset: Dataset
    arrivals: Arrivals
    wanted: Wanted
    model: str | None = None
    model_id: str | None = None
    tokenizer: str | None = None
    tls: ssl.SSLContext | None = None
    max_concurrency: int = 0
    num_warmups: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    ignores_eos: bool = False
    is_streamed: bool = True
    request_id_prefix: str = "bench-"
    ready_timeout_s: float = 0.0
    timeout_s: float = DEFAULT_TIMEOUT_S
    turn_delay_s: float = 0.0
    is_profiled: bool = False
    keeps_texts: bool = False
    budget_bytes: int = DEFAULT_BUDGET_BYTES
    keeps_trace_times: bool = True
    metrics_interval_s: float = 1.0
