"""When the queue takes no more: too many requests, too many tokens, or too long a wait (S8, S11)."""

from __future__ import annotations

from qanat.config.resolved import SchedulerLimits
from qanat.core.errors import QueueFullError
from qanat.core.request import Request
from qanat.scheduler.forecast import Forecast, whole_seconds
from qanat.scheduler.running_set import RunningSet
from qanat.scheduler.waiting_queue import WaitingQueue

MAX_OVERFULL = 2
"""How many times its bound the queue may hold, so that owners beyond the one who filled it have their share."""


class QueueBounds:
    """Refuses what should not wait here."""

    def __init__(
        self, limits: SchedulerLimits, waiting: WaitingQueue, running: RunningSet, forecast: Forecast
    ) -> None:
        self._limits = limits
        self._waiting = waiting
        self._running = running
        self._forecast = forecast

    def check(self, request: Request, priority: int) -> None:
        """Checks whether a request may be queued.

        Into an empty queue even one over the token bound may go: waiting would not help it. Requests for which there
        are rows do not count: they come in bursts between two steps and do not wait.

        Raises:
            QueueFullError: it may not; with the time after which it probably may.
        """
        waiting, limits = self._waiting, self._limits
        num_free_rows = limits.max_num_seqs - len(self._running)
        num_waiting, num_tokens = len(waiting), request.num_tokens
        if num_waiting >= limits.max_waiting_requests + num_free_rows and not self._has_share(
            request.owner, num_waiting - num_free_rows, 1, limits.max_waiting_requests, is_tokens=False
        ):
            raise self._refusal(
                request,
                priority,
                f"{num_waiting - num_free_rows} requests are waiting, the bound of the queue. Try again later or raise "
                "--max-num-queued-reqs.",
            )
        if (
            waiting.num_tokens
            and waiting.num_tokens + num_tokens > limits.max_waiting_tokens
            and not self._has_share(
                request.owner, waiting.num_tokens, num_tokens, limits.max_waiting_tokens, is_tokens=True
            )
        ):
            raise self._refusal(
                request,
                priority,
                f"{waiting.num_tokens} tokens are waiting; with {num_tokens} more the queue would exceed its bound of "
                f"{limits.max_waiting_tokens}. Try again later or raise --max-num-queued-tokens.",
            )
        if limits.max_queue_wait_s is not None:
            self._check_wait(request, priority, limits.max_queue_wait_s)

    def _check_wait(self, request: Request, priority: int, max_wait_s: float) -> None:
        wait_s = self._forecast.wait_s(request.owner, priority)
        if wait_s is None or wait_s <= max_wait_s:
            return
        raise QueueFullError(
            f"The request would wait about {wait_s:.0f} s, as {len(self._waiting)} requests with "
            f"{self._waiting.num_tokens} tokens are waiting; the bound is {max_wait_s:g} s (--max-queue-wait-s). Try "
            "again later.",
            retry_after_s=whole_seconds(wait_s - max_wait_s),
        )

    def _has_share(self, owner: str, num_here: int, num_more: int, bound: int, *, is_tokens: bool) -> bool:
        """True for an owner who has less than an equal share in the queue that others have filled."""
        num_own, num_own_tokens, num_owners = self._waiting.share_of(owner)
        own = num_own_tokens if is_tokens else num_own
        is_within_share = own + num_more <= bound // num_owners
        return num_owners > 1 and is_within_share and num_here + num_more <= MAX_OVERFULL * bound

    def _refusal(self, request: Request, priority: int, message: str) -> QueueFullError:
        wait_s = self._forecast.wait_s(request.owner, priority)
        return QueueFullError(message, retry_after_s=whole_seconds(wait_s))
