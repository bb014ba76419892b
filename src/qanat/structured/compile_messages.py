"""What the compile process is told and what it answers: msgpack, each message behind its length."""

from __future__ import annotations

import msgspec

from qanat.core.structured_outputs import StructuredOutputsParams

LENGTH_BYTES = 4
"""Size of the little-endian length before each message."""
CHUNK_BYTES = 1 << 16
"""How much is read from a pipe at a time."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First message to the process.

    Attributes:
        backend: see `qanat.structured.backend`.
        packed_vocabulary: of the engine's tokenizer.
        timeout_s: seconds that one form may take.
        max_memory_bytes: memory that one form may take.
        max_grammar_bytes: size of its grammar.
    """

    backend: str
    packed_vocabulary: bytes
    timeout_s: float
    max_memory_bytes: int
    max_grammar_bytes: int


class Compile(msgspec.Struct, frozen=True, tag=True):
    """Compile this form."""

    job_id: int
    params: StructuredOutputsParams


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for this job any more."""

    job_id: int


class Compiled(msgspec.Struct, frozen=True, tag=True):
    """The form can be followed; `grammar` is what travels."""

    job_id: int
    grammar: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The form cannot be compiled.

    Attributes:
        job_id: of the job.
        message: why, and what to change.
        param: the field at fault.
        is_overrun: a limit on time or memory was met; another time it may not be.
    """

    job_id: int
    message: str
    param: str | None = None
    is_overrun: bool = False


ToCompiler = Setup | Compile | Cancel
FromCompiler = Compiled | Refused


def framed(message: ToCompiler | FromCompiler) -> bytes:
    """A message with its length."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(LENGTH_BYTES, "little") + payload


class FrameReader:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now, without their lengths."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._buffer[:LENGTH_BYTES], "little")
            if len(self._buffer) < end:
                break
            messages.append(bytes(self._buffer[LENGTH_BYTES:end]))
            del self._buffer[:end]
        return messages
