"""What an answer said and when: made of a recording, after the run."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from qanat.bench.client.events import EventReader
from qanat.bench.client.framing import Framer, FramingError
from qanat.bench.client.recording import Recording
from qanat.bench.client.whole_events import read_whole_events
from qanat.bench.online.message import Choice, Said, Usage, read_message, read_object

DONE = b"[DONE]"
BY_IDS, BY_RUNNING_USAGE, BY_USAGE = "token ids", "usage in every chunk", "usage at the end"
BY_CHUNKS, BY_WORDS = "number of chunks", "words of the text"
"""What the tokens were counted by, the best first."""
MIN_REPEATABLE = 16
"""Shorter outputs say nothing of loops."""
MAX_MESSAGE_CHARS = 300


@dataclass
class Answer:
    """One request's outcome; times are seconds from the start of the run.

    Attributes:
        index: place among all requests.
        intended_s: when the schedule wanted it sent.
        ready_s: when only the client was left to wait for.
        sent_s: when the client began with it.
        end_s: when the last byte, or the failure, was there.
        failure: kind of failure; empty for a complete answer with at least one token.
        message: what was seen of it.
        chunk_times_s: arrival of each chunk with tokens; empty where the answer came in one piece by request.
        chunk_tokens: tokens of each of them.
        last_chunk_s: arrival of the last chunk that belongs to the answer.
        num_output_tokens: tokens generated.
        num_prompt_tokens: as the server counts them; None if it does not say.
        num_cached_tokens: of the prompt, from the server's prefix cache; None if it does not say.
        counter: what tokens were counted by.
        text: what was said, thinking first; empty unless wanted.
        distinct_pairs: different pairs of neighbours by tokens, or by words; None for a short output.
        finish_reason: as the server says.
    """

    index: int
    intended_s: float
    ready_s: float
    sent_s: float
    end_s: float
    failure: str = ""
    message: str = ""
    chunk_times_s: array[float] = field(default_factory=lambda: array("d"))
    chunk_tokens: array[int] = field(default_factory=lambda: array("I"))
    last_chunk_s: float = 0.0
    num_output_tokens: int = 0
    num_prompt_tokens: int | None = None
    num_cached_tokens: int | None = None
    counter: str = BY_CHUNKS
    text: str = ""
    distinct_pairs: float | None = None
    finish_reason: str = ""

    @property
    def is_ok(self) -> bool:
        """True for a complete answer with at least one token."""
        return not self.failure

    @property
    def is_streamed(self) -> bool:
        """True if it came chunk by chunk."""
        return bool(self.chunk_times_s)

    @property
    def is_single_chunk(self) -> bool:
        """True if several tokens came in one chunk alone: its time to first token is that of all of them."""
        return len(self.chunk_times_s) == 1 and self.num_output_tokens > 1


def read_answer(
    recording: Recording, pieces: Iterable[tuple[int, bytes]], start_ns: int, *, has_text: bool = True
) -> Answer:
    """Reads a recording.

    Args:
        recording: that has ended.
        pieces: what came, with times in nanoseconds.
        start_ns: start of the run.
        has_text: keep what was said.
    """
    answer = Answer(
        index=recording.index,
        intended_s=(recording.intended_ns - start_ns) / 1e9,
        ready_s=(recording.ready_ns - start_ns) / 1e9,
        sent_s=(recording.sent_ns - start_ns) / 1e9,
        end_s=(recording.end_ns - start_ns) / 1e9,
        failure=recording.failure,
        message=recording.message,
    )
    reader = _Reader(answer, has_text)
    try:
        reader.read(list(pieces), start_ns)
    except FramingError as error:
        answer.failure, answer.message = answer.failure or "no_http", answer.message or str(error)
    reader.settle(recording.status)
    return answer


class _Reader:
    """Fills an answer from what came."""

    def __init__(self, answer: Answer, has_text: bool) -> None:
        self._answer = answer
        self._has_text = has_text
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._ids: list[int] = []
        self._by: set[str] = set()
        self._total: int | None = None
        self._is_stream = False
        self._is_done = False

    def read(self, pieces: Sequence[tuple[int, bytes]], start_ns: int) -> None:
        events = read_whole_events([piece for _, piece in pieces])
        if events is None:
            self._read_any(pieces, start_ns)
            return
        self._is_stream = True
        for number, data in events:
            self._take_event(data, (pieces[number][0] - start_ns) / 1e9)

    def _read_any(self, pieces: Sequence[tuple[int, bytes]], start_ns: int) -> None:
        framer, events = Framer(), EventReader()
        body: list[bytes] = []
        at_s = 0.0
        for time_ns, piece in pieces:
            payload = framer.feed(piece)
            if not payload:
                continue
            at_s = (time_ns - start_ns) / 1e9
            if framer.status == 200 and framer.is_event_stream:
                self._is_stream = True
                for data in events.feed(payload):
                    self._take_event(data, at_s)
            else:
                body.append(payload)
        if self._is_stream:
            for data in events.close():
                self._take_event(data, at_s)
            if not framer.close():
                self._fail("cut", "bytes that look like the end of the stream are in the midst of it")
        elif not self._answer.failure and framer.status == 200:
            self._take_whole(b"".join(body))
        elif not self._answer.failure and framer.status:
            self._fail(f"http_{framer.status}", _error_text(b"".join(body)))

    def settle(self, status: int) -> None:
        """Counts, and says what is missing."""
        answer = self._answer
        if self._is_stream and not answer.failure and not self._is_done and not answer.finish_reason:
            self._fail("cut", "the stream ended without a finish reason or [DONE]")
        self._settle_counts()
        if not answer.failure and not answer.num_output_tokens:
            self._fail("empty", f"status {status}, and no token")
        text = "".join([*self._thoughts, *self._texts])
        answer.distinct_pairs = _distinct_pairs(self._ids or text.split())
        if self._has_text:
            answer.text = text

    def _settle_counts(self) -> None:
        answer, tokens = self._answer, self._answer.chunk_tokens
        counted = sum(tokens)
        if BY_CHUNKS not in self._by and tokens:
            answer.counter = BY_IDS if self._by == {BY_IDS} else BY_RUNNING_USAGE
            if self._total is not None and self._total > counted:
                tokens[-1] += self._total - counted
        elif BY_WORDS in self._by:
            answer.counter = BY_WORDS
        elif self._total is not None:
            answer.counter = BY_USAGE
            if self._total != counted and tokens:
                count = len(tokens)
                marks = [round(place * self._total / count) for place in range(count + 1)]
                answer.chunk_tokens = array("I", (marks[i + 1] - marks[i] for i in range(count)))
        answer.num_output_tokens = self._total if self._total is not None else counted

    def _take_event(self, data: bytes, at_s: float) -> None:
        if data == DONE:
            self._is_done = True
            return
        message = read_message(data)
        if message is None:
            self._fail("no_json", data[:MAX_MESSAGE_CHARS].decode(errors="replace"))
            return
        if message.error:
            self._fail("stream_error", _error_text(data))
            return
        running = self._take_usage(message.usage) if message.usage is not None else None
        if not message.choices:
            return
        has_text = has_ids = False
        num_tokens = 0
        for choice in message.choices:
            has_text = self._take_choice(choice, choice.delta) or has_text
            if choice.token_ids is not None:
                has_ids = True
                num_tokens += len(choice.token_ids)
                self._ids += choice.token_ids
        if not has_ids:
            num_tokens = self._count_without_ids(running, has_text)
        elif num_tokens:
            self._by.add(BY_IDS)
        if num_tokens or has_text:
            self._answer.chunk_times_s.append(at_s)
            self._answer.chunk_tokens.append(num_tokens)
        self._answer.last_chunk_s = at_s

    def _count_without_ids(self, running: int | None, has_text: bool) -> int:
        """Tokens of a chunk by its usage, or 1 for one with text."""
        # Behind a chunk without usage it is the usage that comes with the end alone.
        if running is not None and BY_CHUNKS not in self._by:
            if running:
                self._by.add(BY_RUNNING_USAGE)
            return running
        if has_text:
            self._by.add(BY_CHUNKS)
        return int(has_text)

    def _take_whole(self, body: bytes) -> None:
        """An answer that was not streamed."""
        message = read_message(body)
        if message is None or message.error:
            self._fail("no_json" if message is None else "stream_error", _error_text(body))
            return
        if message.usage is not None:
            self._take_usage(message.usage)
        for choice in message.choices or ():
            if self._take_choice(choice, choice.message) and self._total is None:
                self._total = len("".join(self._texts + self._thoughts).split())
                self._by.add(BY_WORDS)
        self._answer.last_chunk_s = self._answer.end_s

    def _take_choice(self, choice: Choice, said: Said | None) -> bool:
        """Takes the text of a choice; True if there is some."""
        if choice.finish_reason is not None:
            self._answer.finish_reason = choice.finish_reason
        if choice.text:
            self._texts.append(choice.text)
            return True
        if said is None:
            return False
        has_text = bool(said.tool_calls)
        if said.content:
            self._texts.append(said.content)
            has_text = True
        for thought in (said.reasoning_content, said.reasoning):
            if thought:
                self._thoughts.append(thought)
                has_text = True
        return has_text

    def _take_usage(self, usage: Usage) -> int | None:
        """Takes the counts; gives by how much those of the output have grown, None if nothing is said."""
        answer, details = self._answer, usage.prompt_tokens_details
        if usage.prompt_tokens is not None:
            answer.num_prompt_tokens = usage.prompt_tokens
        if details is not None and details.cached_tokens is not None:
            answer.num_cached_tokens = details.cached_tokens
        total = usage.completion_tokens
        if total is None or total < 0:
            return None
        grown = max(0, total - (self._total or 0))
        self._total = total
        return grown

    def _fail(self, kind: str, message: str) -> None:
        if not self._answer.failure:
            self._answer.failure, self._answer.message = kind, message


def _distinct_pairs(tokens: Sequence[object]) -> float | None:
    """Different pairs of neighbours by tokens; None for too few."""
    if len(tokens) < MIN_REPEATABLE:
        return None
    return len(set(zip(tokens, tokens[1:], strict=False))) / len(tokens)


def _error_text(body: bytes) -> str:
    """The message in an error's body, or its beginning."""
    value = read_object(body)
    if value is not None:
        error = value.get("error", value)
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return str(error["message"])[:MAX_MESSAGE_CHARS]
        if isinstance(error, str):
            return error[:MAX_MESSAGE_CHARS]
    return body[:MAX_MESSAGE_CHARS].decode(errors="replace")
