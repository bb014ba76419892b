"""What is remembered of one request: for the access log, the metrics, and the header that tells the client."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.router.model import Header

HEADER = b"x-qanat-router"
"""Tells the client which endpoint answers and why."""


@dataclass(slots=True, eq=False)
class Record:
    """One request's way through the router. The application makes it, the relay fills it in.

    Attributes:
        request_id: the client's X-Request-Id, else made here; engines get it too.
        begin_s: on the event loop's clock.
        endpoint: name of the endpoint that answers, the last one if there were several; empty for none.
        reason: why that endpoint.
        prefill_endpoint: name of the one that computed the prompt, of a disaggregated pair.
        num_retries: attempts before the first byte that failed.
        num_continued: times that the answer went on elsewhere after its first byte.
        wait_s: in the router's own queue.
        first_byte_s: from `begin_s` to the first byte of the answer's body; None if there was none.
        num_prompt_tokens: as the engine counted; None if it did not say.
        num_output_tokens: as the engine counted, or as seen in the stream; None if not known.
        error: code of the error that ended it; empty for none.
        tells_client: whether `headers` name the endpoint.
    """

    request_id: str
    begin_s: float
    endpoint: str = ""
    reason: str = ""
    prefill_endpoint: str = ""
    num_retries: int = 0
    num_continued: int = 0
    wait_s: float = 0.0
    first_byte_s: float | None = None
    num_prompt_tokens: int | None = None
    num_output_tokens: int | None = None
    error: str = ""
    tells_client: bool = True

    def chosen(self, endpoint: str, reason: str) -> None:
        """Remembers who was chosen, and why."""
        self.endpoint = endpoint
        self.reason = reason

    def headers(self) -> list[Header]:
        """What the router adds to the head of every answer, whoever wrote it."""
        headers: list[Header] = [(b"x-request-id", self.request_id.encode("latin-1", "replace"))]
        if self.tells_client and self.endpoint:
            text = f"endpoint={self.endpoint}; reason={self.reason}; retries={self.num_retries}"
            if self.prefill_endpoint:
                text += f"; prefill={self.prefill_endpoint}"
            headers.append((HEADER, text.encode("latin-1", "replace")))
        return headers
