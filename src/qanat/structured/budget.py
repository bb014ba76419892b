"""How long following a form may hold up the steps that its outputs share with everybody else's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from qanat.core.constraint import Matcher
from qanat.core.errors import StructuredOutputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_CREDIT_S = 1.0
"""Work that one form may have done at once, for all of its outputs together."""
TOKEN_CREDIT_S = 0.01
"""What a token of any of its outputs adds; tens of times what one takes with a plain form."""
CREDIT_PER_SECOND = 0.02
"""What time adds, so that a form which was once too slow is not so for ever."""

TOO_COMPLEX = "The form became too complex to follow. Simplify the schema or grammar."


class WorkBudget:
    """What the outputs of one form may still take.

    Args:
        work_s: clock of the work, by default this thread's time on a processor: a busy machine ends nobody's output.
        time_s: monotonic clock.
    """

    def __init__(
        self, work_s: Callable[[], float] = time.thread_time, time_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._work_s = work_s
        self._time_s = time_s
        self._credit_s = MAX_CREDIT_S
        self._seen_s = time_s()

    @contextlib.contextmanager
    def spent(self, num_tokens: int = 0) -> Iterator[None]:
        """Accounts for the work inside, whether it succeeds or not.

        Args:
            num_tokens: tokens that are taken by it.

        Raises:
            StructuredOutputError: nothing is left for it, or it took more than there was.
        """
        self._gain(0)
        self._check()
        begun_s = self._work_s()
        try:
            yield
        finally:
            self._gain(num_tokens)
            self._credit_s = max(-MAX_CREDIT_S, self._credit_s - (self._work_s() - begun_s))
        self._check()

    def _gain(self, num_tokens: int) -> None:
        now_s = self._time_s()
        gain_s = TOKEN_CREDIT_S * num_tokens + CREDIT_PER_SECOND * (now_s - self._seen_s)
        self._seen_s = now_s
        self._credit_s = min(MAX_CREDIT_S, self._credit_s + gain_s)

    def _check(self) -> None:
        if self._credit_s < 0:
            raise StructuredOutputError(TOO_COMPLEX)


class BudgetedMatcher:
    """A matcher that ends its output when its form has taken too long.

    Args:
        matcher: does the work.
        budget: shared by all outputs of a form.
    """

    def __init__(self, matcher: Matcher, budget: WorkBudget) -> None:
        self._matcher = matcher
        self._budget = budget

    def fill_mask(self, words: npt.NDArray[np.int32]) -> bool:
        """See `Matcher`."""
        with self._budget.spent():
            return self._matcher.fill_mask(words)

    def consume(self, token_id: int) -> None:
        """See `Matcher`."""
        with self._budget.spent(num_tokens=1):
            self._matcher.consume(token_id)

    def rollback(self, num_tokens: int) -> None:
        """See `Matcher`."""
        self._matcher.rollback(num_tokens)

    def forced(self) -> list[int]:
        """See `Matcher`."""
        with self._budget.spent():
            return self._matcher.forced()
