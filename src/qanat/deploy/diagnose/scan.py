"""Finds the lines of a log that are worth reading, at the speed of searching bytes.

A log of a gigabyte holds a few thousand lines that matter. Blocks are searched for texts that such lines contain;
blocks without any are only counted. Memory is bounded by the block, however long lines are.
"""

from __future__ import annotations

import codecs
import functools
import gzip
import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, NamedTuple

from qanat.deploy.diagnose.stages import stage_patterns
from qanat.deploy.knowledge.load import load_knowledge

BLOCK_BYTES = 1 << 18
HEAD_BYTES = 1 << 20
"""So much of a log's beginning is read whole: that is where settings are printed."""
MAX_LINE_BYTES = 1 << 16
CONTEXT_LINES = 40
"""So many lines behind one that matters are read too: what a fault says goes on below it."""

MAX_LINES_IN_DETAIL = 400_000
"""A log that holds more lines of faults and their context tells the same ones again and again."""
ANSWERED = b'HTTP/1.1" 2'
"""Lines about answered requests hold nothing else, and are most of a log."""

GENERIC = (
    *("ERROR", "CRITICAL", "FATAL", "Error", "Exception", "Traceback (most", '  File "', "error:"),
    *("error code", "core dumped", "terminate called", "panicked at"),
)
"""Texts of lines that tell of faults nobody has described."""
CANN_CODE = "E12345:"
"""Stands among the texts of a line for a code of CANN's errors: "EI0006: ..." or "Communication_Error(EI0006): ..."."""
_CANN_CODES = (re.compile(rb"\nE[A-Z0-9]\d{4}:"), re.compile(rb"\(E[A-Z0-9]\d{4}\): "))
"""Two expressions that begin with fixed bytes: these are searched for many times faster than an alternative."""


class RawLine(NamedTuple):
    """A line that is worth reading: its number from 1, its text, and which of `literals()` it holds."""

    number: int
    text: str
    literals: tuple[str, ...]


@dataclass
class ScanStatistics:
    """What was read: lines, bytes, and the sentence why reading ended early (empty if it did not).

    From line `brief_from` on only lines with known texts were looked at; 0 if all were. `num_answered` lines only
    tell of an answered request; `is_binary`: there are zero bytes in its beginning, and it is no UTF-16.
    """

    num_lines: int = 0
    size_bytes: int = 0
    ended_early: str = ""
    brief_from: int = 0
    num_answered: int = 0
    is_binary: bool = False


@functools.cache
def literals() -> tuple[str, ...]:
    """Every text that makes a line worth reading."""
    known = [literal for signature in load_knowledge().signatures for literal in signature.literals]
    known += [literal for entry, _ in stage_patterns() for literal in entry.literals]
    return tuple(dict.fromkeys((*known, *GENERIC)))


def scan(stream: IO[bytes], statistics: ScanStatistics) -> Iterator[RawLine]:
    """The lines that matter, in order; `statistics` is filled meanwhile.

    Args:
        stream: bytes of any kind.
        statistics: counts what was read.
    """
    wanted = [(literal, literal.encode()) for literal in literals()]
    generic = frozenset((*GENERIC, CANN_CODE))
    hot, last_given, num_given = 0, 0, 0
    last: deque[tuple[int, bytes]] = deque(maxlen=CONTEXT_LINES)
    for block in _whole_lines(_decoded(stream, statistics)):
        is_head = statistics.size_bytes <= HEAD_BYTES
        before = statistics.num_lines
        lines = block.split(b"\n")[:-1]
        statistics.num_lines += len(lines)
        kept = [(number, line) for number, line in enumerate(lines, before + 1) if ANSWERED not in line]
        statistics.num_answered += len(lines) - len(kept)
        last.extend(kept[-CONTEXT_LINES:])
        rest = b"\n".join([b"", *[line for _, line in kept]])
        present = [pair for pair in wanted if pair[1] in rest]
        coded = frozenset(code for pattern in _CANN_CODES for code in pattern.findall(rest))
        if not present and not coded and not hot and not is_head:
            continue
        for number, line in kept:
            found = tuple([text for text, sought in present if sought in line])
            if coded and any(code in b"\n" + line for code in coded):
                found = (*found, CANN_CODE)
            if found and not generic.isdisjoint(found):
                hot = CONTEXT_LINES
            if found or hot or is_head:
                last_given = number
                num_given += 1
                yield _raw(number, line, found)
            hot = max(0, hot - 1)
        if num_given > MAX_LINES_IN_DETAIL and not statistics.brief_from:
            statistics.brief_from, hot = statistics.num_lines + 1, 0
            wanted = [pair for pair in wanted if pair[0] not in generic]
    # The end tells whether anything went on behind a fault.
    yield from (_raw(number, line, ()) for number, line in last if number > last_given)


def _raw(number: int, line: bytes, found: tuple[str, ...]) -> RawLine:
    return RawLine(number, line[:MAX_LINE_BYTES].decode("utf-8", errors="replace"), found)


def _decoded(stream: IO[bytes], statistics: ScanStatistics) -> Iterator[bytes]:
    """Blocks of the stream as UTF-8; what Windows tools write as UTF-16 is converted."""
    decoder: codecs.IncrementalDecoder | None = None
    is_first = True
    try:
        while block := stream.read(BLOCK_BYTES):
            statistics.size_bytes += len(block)
            if is_first and block[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")
            if is_first and decoder is None:
                statistics.is_binary = b"\0" in block
            is_first = False
            yield decoder.decode(block).encode("utf-8", errors="replace") if decoder else block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        statistics.ended_early = f"the packed file is damaged ({error}); what stands before was read"


def _whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that end with a line; a line longer than `MAX_LINE_BYTES` loses what is behind."""
    rest = b""
    is_cut = False
    for block in blocks:
        if is_cut:
            end = block.find(b"\n")
            if end < 0:
                continue
            block = rest + block[end:]
            rest, is_cut = b"", False
        else:
            block = rest + block
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if len(rest) > MAX_LINE_BYTES:
            rest, is_cut = rest[:MAX_LINE_BYTES], True
        if end:
            yield block[:end]
    if rest:
        yield rest + b"\n"
