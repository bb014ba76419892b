"""What prompts begin with, as chained hashes, and which engine has seen which beginnings."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from qanat.router.json_body import encoded
from qanat.router.model import Call

FIRST_PIECE_BYTES = 256
PIECES_PER_SIZE = 8
MAX_PIECES = 64
DEFAULT_CAPACITY = 65536
_CACHE_FIELDS = ("model", "cache_salt", "lora_request", "tools", "chat_template", "chat_template_kwargs")


def prefix_hashes(call: Call) -> tuple[int, ...]:
    """The hashes of the call's leading pieces, each of all bytes up to there; computed once and kept in the call.

    Pieces double in size after every eight, so that a long prompt has few: 40 for 63 KiB. The last, incomplete
    piece is left out: in the next turn of a conversation it reads on.
    """
    if call.prefix_hashes is None:
        call.prefix_hashes = tuple(chained(prompt_bytes(call.fields))) if call.fields else ()
    return call.prefix_hashes


def prompt_bytes(fields: dict[str, Any]) -> bytes:
    """What decides the engine's cache, in the order of the prompt: model and tools before messages."""
    head = [fields.get(name) for name in _CACHE_FIELDS]
    prompt = next((fields[name] for name in ("messages", "prompt", "input") if fields.get(name)), None)
    if prompt is None:
        return b""
    return encoded([head, prompt])


def chained(data: bytes) -> list[int]:
    """Hashes of growing pieces of the bytes, each piece's with the one before it; the same in this process only."""
    hashes: list[int] = []
    begin, size, previous = 0, FIRST_PIECE_BYTES, 0
    while begin + size <= len(data) and len(hashes) < MAX_PIECES:
        previous = hash((previous, data[begin : begin + size]))
        hashes.append(previous)
        begin += size
        if len(hashes) % PIECES_PER_SIZE == 0:
            size *= 2
    return hashes


class PrefixMemory:
    """The beginnings that one engine has computed lately: at most `capacity`, the longest unused are forgotten."""

    __slots__ = ("_seen", "_capacity")

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self._seen: OrderedDict[int, None] = OrderedDict()
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._seen)

    def num_known(self, hashes: Sequence[int]) -> int:
        """How many of the leading pieces are known; those behind a gap do not count."""
        for index, each in enumerate(hashes):
            if each not in self._seen:
                return index
        return len(hashes)

    def add(self, hashes: Sequence[int]) -> None:
        """The engine has computed these. Of one prompt the tail is forgotten before the head."""
        seen = self._seen
        for each in reversed(hashes):
            seen[each] = None
            seen.move_to_end(each)
        while len(seen) > self._capacity:
            seen.popitem(last=False)


def known_share(num_known: int, num_pieces: int) -> float:
    """The share of the prompt's bytes that so many known pieces are, of 0 to 1."""
    return _num_bytes(num_known) / _num_bytes(num_pieces) if num_pieces else 0.0


def _num_bytes(num_pieces: int) -> int:
    full, rest = divmod(num_pieces, PIECES_PER_SIZE)
    return FIRST_PIECE_BYTES * (PIECES_PER_SIZE * ((1 << full) - 1) + (rest << full))
