"""What one owner has been served."""

from __future__ import annotations

MEMORY = 16
"""So many outputs, about, are remembered for their mean length."""


class OutputMean:
    """The mean length of outputs, the later ones counting for more.

    Attributes:
        num_tokens: the mean; None before the first output.
    """

    __slots__ = ("_num_seen", "num_tokens")

    def __init__(self) -> None:
        self._num_seen = 0
        self.num_tokens: float | None = None

    def observe(self, num_tokens: int) -> None:
        """Takes in the length of one output."""
        self._num_seen = min(self._num_seen + 1, MEMORY)
        before = self.num_tokens or 0.0
        self.num_tokens = before + (num_tokens - before) / self._num_seen


class Owner:
    """One owner's account. What it has really been served is `num_served - num_unspent`.

    Attributes:
        name: as its requests say.
        num_served: tokens that were charged. It only grows, so that places in the queue are never too far behind.
        num_unspent: of those, what was given back; the next charges are paid from it.
        outputs: lengths of its outputs.
        num_waiting: requests in the queue, preempted ones not counted.
        num_waiting_tokens: their known tokens.
    """

    __slots__ = ("name", "num_served", "num_unspent", "num_waiting", "num_waiting_tokens", "outputs")

    def __init__(self, name: str, num_served: int) -> None:
        self.name = name
        self.num_served = num_served
        self.num_unspent = 0
        self.outputs = OutputMean()
        self.num_waiting = 0
        self.num_waiting_tokens = 0

    def charge(self, num_tokens: int) -> None:
        """Counts work that is done for it; a negative number gives back."""
        self.num_unspent -= num_tokens
        if self.num_unspent < 0:
            self.num_served -= self.num_unspent
            self.num_unspent = 0

    def come_back(self, num_served_at_turn: int) -> None:
        """It had nothing waiting: it has no claim on what others were served meanwhile."""
        num_kept = max(self.num_served - self.num_unspent, num_served_at_turn)
        self.num_served = max(self.num_served, num_kept)
        self.num_unspent = self.num_served - num_kept
