"""Is an engine alive? What looks at it find, put together; pure, so that time is what the caller says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Finding(str, Enum):
    """What one look at an engine found. BROKEN: the connection ended before an answer came."""

    OK = "ok"
    SICK = "sick"
    REFUSED = "refused"
    BROKEN = "broken"
    SILENT = "silent"


class Verdict(str, Enum):
    """What follows. ASK: only a token can tell; WAIT: nothing new is known."""

    HEALTHY = "healthy"
    SICK = "sick"
    REFUSED = "refused"
    SILENT = "silent"
    ASK = "ask"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Look:
    """One look.

    Attributes:
        finding: what /health said, or that it did not.
        num_running: requests that the engine has from this router.
        num_pieces: pieces of answers that came from it, ever.
        num_engine_tokens: tokens that the engine says it computed, ever; None if it was not asked or does not say.
    """

    finding: Finding
    num_running: int = 0
    num_pieces: int = 0
    num_engine_tokens: float | None = None


@dataclass(frozen=True, slots=True)
class VitalRules:
    """When an engine is given up.

    Attributes:
        max_silent: looks in a row that got no answer, while no stream moved. The last says whether the engine is
            silent, so that nothing more is to be expected of it, or refuses.
        stall_s: how long a busy engine may move nothing before it is asked for a token, and how long it has for that.
    """

    max_silent: int = 2
    stall_s: float = 60.0


class Vitals:
    """The state of one engine's health.

    A stream that moves proves life whatever /health says by its silence; /health proves little of an engine that is
    busy and moves nothing. A long prefill looks like that too, so before it is given up it is asked for one token,
    which an engine that still takes steps computes beside the prefill.
    """

    def __init__(self, now_s: float, rules: VitalRules | None = None) -> None:
        self._rules = rules or VitalRules()
        self._num_silent = 0
        self._num_pieces = 0
        self._num_engine_tokens: float | None = None
        self._moved_s = now_s
        self._asked_s: float | None = None
        self._owes_token = False
        self._is_still = False

    @property
    def is_still(self) -> bool:
        """Nothing has moved since the look before: the engine's own figures are worth asking for."""
        return self._is_still

    @property
    def owes_token(self) -> bool:
        """It was given up for want of a token, and must show one to come back."""
        return self._owes_token

    def look(self, now_s: float, look: Look) -> Verdict:
        """What follows from this look and those before it."""
        has_moved = self._has_moved(look)
        self._is_still = look.num_running > 0 and not has_moved
        if has_moved or not look.num_running:
            self._moved_s = now_s
            if not self._owes_token or has_moved:
                self._asked_s = None
        if has_moved:
            self._owes_token = False
        if look.finding is Finding.SICK and self._is_still and now_s - self._moved_s >= self._rules.stall_s:
            return Verdict.SILENT
        if look.finding is Finding.REFUSED or look.finding is Finding.SICK:
            self._num_silent = 0
            # A new process may stand at the address when it is back; it owes nothing.
            if look.finding is Finding.REFUSED:
                self._owes_token = False
                self._asked_s = None
            return Verdict(look.finding.value)
        if look.finding is not Finding.OK:
            if has_moved:
                self._num_silent = 0
                return Verdict.HEALTHY
            self._num_silent += 1
            if self._num_silent < self._rules.max_silent:
                return Verdict.WAIT
            return Verdict.SILENT if look.finding is Finding.SILENT else Verdict.REFUSED
        self._num_silent = 0
        return self._of_busy(now_s)

    def _of_busy(self, now_s: float) -> Verdict:
        if self._owes_token:
            return Verdict.WAIT if self._asked_s is not None else self._ask(now_s)
        if self._asked_s is not None:
            return Verdict.WAIT
        if self._is_still and now_s - self._moved_s >= self._rules.stall_s:
            return self._ask(now_s)
        return Verdict.HEALTHY

    def _ask(self, now_s: float) -> Verdict:
        self._asked_s = now_s
        return Verdict.ASK

    def answered(self, now_s: float) -> Verdict:
        """The token came, or the engine refuses such questions so that nothing can be told this way."""
        self._asked_s = None
        self._moved_s = now_s
        self._owes_token = False
        return Verdict.HEALTHY

    def unanswered(self) -> Verdict:
        """The token did not come in time."""
        if self._asked_s is None and not self._owes_token:
            return Verdict.WAIT
        self._asked_s = None
        self._owes_token = True
        return Verdict.SILENT

    def _has_moved(self, look: Look) -> bool:
        before, now = self._num_engine_tokens, look.num_engine_tokens
        has_moved = look.num_pieces != self._num_pieces
        if now is not None:
            has_moved |= before is not None and now > before
        self._num_engine_tokens = now
        self._num_pieces = look.num_pieces
        return has_moved
