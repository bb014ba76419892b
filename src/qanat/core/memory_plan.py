"""Where the memory goes, to the byte: made once at start, printed by `qanat plan`, and never exceeded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capacity:
    """How many requests of one length run at once.

    Attributes:
        num_tokens: prompt and output of each.
        num_requests: how many of them the cache and the batch rows hold together.
    """

    num_tokens: int
    num_requests: int


@dataclass(frozen=True)
class MemoryPlan:
    """Sizes of everything that is allocated.

    Attributes:
        available_bytes: what the machine, or the process's control group, could give at planning time.
        budget_bytes: what may be used of it.
        weight_bytes: all parameters.
        workspace_bytes: bound on the temporary memory of one step, and what graphs keep.
        block_size: tokens in one KV block.
        block_bytes: one KV block over all attention layers.
        num_blocks: size of the block pool; one of them is reserved.
        state_bytes: one sequence's recurrent and conv state over all layers; 0 without such layers.
        num_states: size of the state pool; one of them is reserved. 0 without such layers.
        logits_chunk_rows: rows for which logits are computed at a time.
        max_num_seqs: requests that run at once.
        max_model_len: longest prompt and output together, in tokens.
        num_checkpoints: places for copies of states that later requests begin from.
        arena_bytes: of the workspace, where native ops of a step put their outputs.
        graph_bytes: of the workspace, where those of all graphs do.
    """

    available_bytes: int
    budget_bytes: int
    weight_bytes: int
    workspace_bytes: int
    block_size: int
    block_bytes: int
    num_blocks: int
    state_bytes: int
    num_states: int
    logits_chunk_rows: int
    max_num_seqs: int
    max_model_len: int
    num_checkpoints: int = 0
    arena_bytes: int = 0
    graph_bytes: int = 0

    @property
    def blocks_bytes(self) -> int:
        """All KV blocks, the reserved one included."""
        return self.num_blocks * self.block_bytes

    @property
    def states_bytes(self) -> int:
        """All recurrent and conv states, the reserved one included."""
        return self.num_states * self.state_bytes

    @property
    def checkpoints_bytes(self) -> int:
        """All checkpoints."""
        return self.num_checkpoints * self.state_bytes

    @property
    def total_bytes(self) -> int:
        """Weights, workspace, blocks, states and checkpoints."""
        fixed = self.weight_bytes + self.workspace_bytes
        return fixed + self.blocks_bytes + self.states_bytes + self.checkpoints_bytes

    @property
    def max_cached_tokens(self) -> int:
        """Tokens that all KV blocks together hold."""
        return (self.num_blocks - 1) * self.block_size

    def num_requests_of(self, num_tokens: int) -> int:
        """Requests of this length, prompt and output together, that run at once without preempting each other."""
        if num_tokens > self.max_model_len:
            return 0
        blocks_each = max(1, -(-num_tokens // self.block_size))
        return min(self.max_num_seqs, (self.num_blocks - 1) // blocks_each)

    def capacities(self) -> list[Capacity]:
        """`num_requests_of` for lengths from 1,024 tokens on, four times longer each, up to `max_model_len`."""
        lengths = []
        num_tokens = 1024
        while num_tokens < self.max_model_len:
            lengths.append(num_tokens)
            num_tokens *= 4
        return [Capacity(length, self.num_requests_of(length)) for length in [*lengths, self.max_model_len]]
