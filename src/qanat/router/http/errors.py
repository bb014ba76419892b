"""What can go wrong between the router and an engine; each is a fact that the relay acts upon."""

from __future__ import annotations

from qanat.core.errors import QanatError


class UpstreamError(QanatError):
    """Base: an engine could not be asked, or did not finish its answer.

    Attributes:
        endpoint_name: which engine.
        is_sent: bytes of the request may have reached the engine, so that it may have begun to work.
        is_answered: the status line of an answer had come before it went wrong.
        is_local: this process is at fault (no file or port is left), so that it says nothing of the engine.
    """

    code = "upstream_error"
    status = 502

    def __init__(
        self, message: str, endpoint_name: str, *, is_sent: bool = True, is_answered: bool = False
    ) -> None:
        super().__init__(message)
        self.endpoint_name = endpoint_name
        self.is_sent = is_sent
        self.is_answered = is_answered
        self.is_local = False


class UpstreamUnreachable(UpstreamError):
    """No connection could be opened; the engine has seen nothing of the request."""

    code = "upstream_unreachable"
    status = 503


class UpstreamTimeout(UpstreamError):
    """The engine, or the way to it, was silent for too long.

    Attributes:
        phase: "connect", "first_byte" (of the answer) or "idle" (between two pieces of it).
    """

    code = "upstream_timeout"
    status = 504

    def __init__(
        self, message: str, endpoint_name: str, phase: str, *, is_sent: bool = True, is_answered: bool = False
    ) -> None:
        super().__init__(message, endpoint_name, is_sent=is_sent, is_answered=is_answered)
        self.phase = phase


class UpstreamBroken(UpstreamError):
    """The connection ended before the answer did, or what came is not HTTP."""

    code = "upstream_broken"
