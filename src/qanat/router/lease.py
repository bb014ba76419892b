"""One request's hold on an endpoint: its load is counted from dispatch to the end of the body, on every path."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from qanat.router.model import Call, Endpoint


class Lease:
    """`with pool.lease(endpoint, call) as lease`; counted until it is left, however that happens.

    Args:
        num_output_tokens: expected, of all choices together.
        released: told once, at the end, with the number of tokens that came.
    """

    __slots__ = ("endpoint", "num_tokens", "_left_prompt", "_left_output", "_released", "_lost", "_is_open")

    def __init__(
        self,
        endpoint: Endpoint,
        call: Call,
        num_output_tokens: int,
        released: Callable[[Lease], None],
    ) -> None:
        self.endpoint = endpoint
        self.num_tokens = 0
        self._left_prompt = call.num_prompt_tokens
        self._left_output = num_output_tokens
        self._released = released
        self._lost: Callable[[str], None] | None = None
        self._is_open = True
        endpoint.num_running += 1
        endpoint.num_outstanding_tokens += self._left_prompt + num_output_tokens

    def tokens(self, num_tokens: int = 1) -> None:
        """So many output tokens came: the prompt is computed, and so much less is left."""
        endpoint = self.endpoint
        endpoint.num_pieces += 1
        self.num_tokens += num_tokens
        if not self._is_open:
            return
        # What runs on beyond the expectation still costs something: the last token is never taken off.
        taken = min(num_tokens, max(self._left_output - 1, 0))
        endpoint.num_outstanding_tokens -= taken + self._left_prompt
        self._left_output -= taken
        self._left_prompt = 0

    def moved(self) -> None:
        """Bytes came that show the engine at work, though no tokens are known to be in them."""
        self.endpoint.num_pieces += 1

    def when_lost(self, callback: Callable[[str], None] | None) -> None:
        """Calls back, with the reason, if the endpoint is given up while the lease is open: nothing more will come."""
        self._lost = callback

    def lost(self, why: str) -> None:
        """The endpoint is given up."""
        if self._lost is not None and self._is_open:
            self._lost(why)

    def release(self) -> None:
        """Gives back what is counted; leaving the context does it too, and twice is once."""
        if not self._is_open:
            return
        self._is_open = False
        self._lost = None
        self.endpoint.num_running -= 1
        self.endpoint.num_outstanding_tokens -= self._left_prompt + self._left_output
        self._released(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
