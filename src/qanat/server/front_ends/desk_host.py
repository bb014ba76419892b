"""In the parent: the accounts of all callers, over all front ends."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from qanat.core.errors import DeadlineError, QanatError, RateLimitError
from qanat.server.accounts import Accounts, Headers, Lease
from qanat.server.front_ends.line import Reply
from qanat.server.front_ends.words import (
    BeginLease,
    EndLease,
    KeyMetricsAnswer,
    KeyMetricsQuestion,
    OpenLease,
    Refusal,
    UsageAnswer,
    UsageQuestion,
    UseLease,
    Verdict,
    Word,
)
from qanat.server.usage import key_metrics, usage_report


class DeskHost:
    """Lets requests of all front ends in, one after the other, so that a bound holds over all of them."""

    def __init__(self) -> None:
        self._accounts = Accounts()
        self._open: dict[tuple[int, int], _Open] = {}

    def take(self, front_end: int, word: Word, reply: Reply) -> None:
        """Does what a front end says or asks."""
        if isinstance(word, OpenLease):
            self._let_in(front_end, word, reply)
        elif isinstance(word, BeginLease):
            self._begin(front_end, word, reply)
        elif isinstance(word, UseLease):
            if one := self._open.get((front_end, word.lease)):
                one.lease.use(word.num_new, word.num_cached, is_computed=word.is_computed)
        elif isinstance(word, EndLease):
            if one := self._open.pop((front_end, word.lease), None):
                one.end(_error_of(word))
        elif isinstance(word, Refusal):
            self._accounts.of(word.caller).refuse(word.code)
        elif isinstance(word, UsageQuestion):
            reply(UsageAnswer(usage_report(self._accounts, word.caller)))
        elif isinstance(word, KeyMetricsQuestion):
            reply(KeyMetricsAnswer(key_metrics(self._accounts)))

    def forget(self, front_end: int) -> None:
        """Ends all requests of a front end that is gone."""
        for key in [key for key in self._open if key[0] == front_end]:
            self._open.pop(key).end(None)

    def _let_in(self, front_end: int, word: OpenLease, reply: Reply) -> None:
        account = self._accounts.of(word.caller)
        holder = account.lease(word.num_sequences)
        try:
            lease = holder.__enter__()
        except RateLimitError as error:
            reply(_denied(error, account.headers()))
            return
        self._open[front_end, word.lease] = _Open(holder, lease, word)
        reply(Verdict(account.headers()))

    def _begin(self, front_end: int, word: BeginLease, reply: Reply) -> None:
        one = self._open.get((front_end, word.lease))
        if one is None:
            return
        account = self._accounts.of(one.word.caller)
        try:
            one.lease.begin(word.sizes)
        except RateLimitError as error:
            reply(_denied(error, account.headers()))
        else:
            reply(Verdict(account.headers()))


class _Open:
    """A request under way."""

    def __init__(self, holder: AbstractContextManager[Lease], lease: Lease, word: OpenLease) -> None:
        self._holder = holder
        self.lease = lease
        self.word = word

    def end(self, error: QanatError | None) -> None:
        """It has ended."""
        with contextlib.suppress(QanatError):  # the one that is given
            self._holder.__exit__(None if error is None else type(error), error, None)


def _error_of(word: EndLease) -> QanatError | None:
    """An error that counts as the one that the front end met."""
    if not word.code:
        return None
    error: QanatError = DeadlineError("") if word.code == DeadlineError.code else QanatError("")
    error.status, error.has_cost = word.status, word.has_cost
    return error


def _denied(error: RateLimitError, headers: Headers) -> Verdict:
    return Verdict(headers, error.message, error.retry_after_s)
