"""Which replica gets a call: the one with the fewest outstanding tokens."""

from __future__ import annotations

from collections.abc import Mapping

from qanat.scheduler.stats import SchedulerStats


class Load:
    """Outstanding tokens of one replica: those of prompts without an output yet, and one for each row that decodes.

    What this front end has sent is known at once and to the token. What others have sent is told by the scheduler's
    figures, with a step's delay.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}  # prompt tokens, by request
        self._decoding: set[str] = set()
        self._num_waiting_tokens = 0
        self._stats = SchedulerStats()

    def add(self, request_id: str, num_tokens: int) -> None:
        """A request is sent whose prompt, with output that it brings along, has so many tokens."""
        self.end(request_id)
        self._waiting[request_id] = num_tokens
        self._num_waiting_tokens += num_tokens

    def begin(self, request_id: str) -> None:
        """An output of this request came: its prompt is computed."""
        num_tokens = self._waiting.pop(request_id, None)
        if num_tokens is not None:
            self._num_waiting_tokens -= num_tokens
            self._decoding.add(request_id)

    def end(self, request_id: str) -> None:
        """The replica does nothing for this request any more."""
        self.begin(request_id)
        self._decoding.discard(request_id)

    def hear(self, stats: SchedulerStats) -> None:
        """The scheduler's figures after a step."""
        self._stats = stats

    def clear(self) -> None:
        """The replica's core is gone, with all it had to do."""
        self._waiting.clear()
        self._decoding.clear()
        self._num_waiting_tokens = 0
        self._stats = SchedulerStats()

    @property
    def num_tokens(self) -> int:
        """Outstanding tokens, never below 0."""
        stats = self._stats
        own_rows = len(self._waiting) + len(self._decoding)
        rows_of_others = max(0, stats.num_running + stats.num_waiting - own_rows)
        tokens_of_others = max(0, stats.num_waiting_tokens - self._num_waiting_tokens)
        return self._num_waiting_tokens + len(self._decoding) + rows_of_others + tokens_of_others


class Balancer:
    """Chooses by load; among equals, the one that has waited longest for its turn."""

    def __init__(self) -> None:
        self._num_choices = 0
        self._turns: dict[int, int] = {}

    def choose(self, loads: Mapping[int, int]) -> int:
        """The rank of the replica that gets the next call.

        Args:
            loads: outstanding tokens of each replica that can be asked, by rank; at least one.
        """
        rank = min(loads, key=lambda one: (loads[one], self._turns.get(one, 0), one))
        self._num_choices += 1
        self._turns[rank] = self._num_choices
        return rank
