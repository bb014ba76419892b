"""What is done to each event between an engine and a client, whatever the engine is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qanat.router.http.errors import UpstreamBroken
from qanat.router.http.sse import EventSplitter, EventTooLarge

DONE = b"[DONE]"
DONE_EVENT = b"data: [DONE]\n\n"


class StreamBroken(UpstreamBroken):
    """The engine itself said in its stream that it cannot finish it."""

    code = "upstream_stream_broken"


class StreamRecomputed(StreamBroken):
    """A decoder gave a request back, as its cache is needed for others: prompt and output are to be computed again."""

    code = "upstream_recomputed"


class EventFilter(Protocol):
    """Takes the events of one engine's answer in order.

    Attributes:
        broken: set once the engine says that it cannot finish the stream; what `take` returned then is still sent.
    """

    broken: StreamBroken | None

    def take(self, event: bytes) -> bytes:
        """What the client gets of the event; empty for nothing."""
        ...


class EventReader:
    """The callback of a pump: cuts pieces into events, and hands what the filter leaves of them to `send`.

    An event that never becomes complete is dropped, so that a client sees whole events only.

    Args:
        events: what is done to each.
        begin: called before the first piece.
        send: to the client.
        endpoint_name: for errors.
    """

    __slots__ = ("_splitter", "_filter", "_begin", "_send", "_endpoint_name")

    def __init__(
        self,
        events: EventFilter,
        begin: Callable[[], None],
        send: Callable[[bytes], None],
        endpoint_name: str,
    ) -> None:
        self._splitter = EventSplitter()
        self._filter = events
        self._begin: Callable[[], None] | None = begin
        self._send = send
        self._endpoint_name = endpoint_name

    def __call__(self, piece: bytes) -> None:
        """Takes what came from the engine.

        Raises:
            StreamBroken: the engine says that it cannot go on, or sends no events.
        """
        if self._begin is not None:
            self._begin()
            self._begin = None
        try:
            events = self._splitter.feed(piece)
        except EventTooLarge as error:
            raise StreamBroken(
                f"endpoint {self._endpoint_name} sent {error}", self._endpoint_name, is_answered=True
            ) from None
        if len(events) == 1:
            data = self._filter.take(events[0])
        else:
            kept = []
            for event in events:
                kept.append(self._filter.take(event))
                if self._filter.broken is not None:
                    break
            data = b"".join(kept)
        if data:
            self._send(data)
        if self._filter.broken is not None:
            raise self._filter.broken
