"""The scheduler's figures, sent with every step's outputs."""

from __future__ import annotations

import msgspec

from qanat.cache.prefix_stats import PrefixStats
from qanat.core.graph_counts import GraphCounts
from qanat.core.speculation import SpeculationCounts


class SchedulerStats(msgspec.Struct, frozen=True):
    """Gauges at this moment, and counters since the start.

    Attributes:
        num_running: requests in the batch.
        num_waiting: requests in the queue, preempted ones included.
        num_waiting_tokens: known tokens of the waiting requests.
        num_preemptions: counter.
        num_free_blocks, num_usable_blocks: KV blocks.
        num_free_states, num_usable_states: recurrent states; 0 for models without.
        cache_usage: share of the KV blocks that is owned, in [0, 1].
        state_usage: share of the states that is owned, in [0, 1].
        prefill_s_per_token: estimate behind the bound on decode stalls, in seconds; 0 while nothing is known.
        step_s: seconds that steps have taken since the start.
        collective_s: of those, seconds in exchanges between ranks.
        graphs: how the steps ran.
        speculation: what became of drafts.
        prefixes: what is kept for reuse.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_waiting_tokens: int = 0
    num_preemptions: int = 0
    num_free_blocks: int = 0
    num_usable_blocks: int = 0
    num_free_states: int = 0
    num_usable_states: int = 0
    cache_usage: float = 0.0
    state_usage: float = 0.0
    prefill_s_per_token: float = 0.0
    step_s: float = 0.0
    collective_s: float = 0.0
    graphs: GraphCounts = GraphCounts()
    speculation: SpeculationCounts = SpeculationCounts()
    prefixes: PrefixStats = PrefixStats()
