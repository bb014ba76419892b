"""What rank 0 and the other ranks tell each other: msgpack, and never a tensor."""

from __future__ import annotations

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import NewRow, ScheduledBatch
from qanat.core.memory_plan import MemoryPlan
from qanat.core.sampling_params import SamplingParams

LENGTH_BYTES = 8
"""Size of the little-endian length before each message on a pipe or socket."""


START_PROFILE, STOP_PROFILE = b"\1", b"\2"
"""To all ranks, between batches and on their way; no batch is so short."""
KEEP = b"\3"
"""Before a `PrefixOrder`, likewise; no batch begins so."""


class RankStart(msgspec.Struct, frozen=True):
    """To a rank, on its standard input: all that it needs to start.

    Attributes:
        rank: of the one that is told.
        reader: its place among the readers of its host's ring.
        num_readers: how many they are.
        config: the resolved configuration, with its number of ranks.
        memory_plan: what each rank allocates.
        address: of this host's interface over which the ranks are connected.
        secret: by which the ranks of this group know each other.
        join_timeout_s: all of them must have come within this.
        log_level, log_format: how it writes its log.
        dies_with_parent: whether the system is to kill it when the thread that started it ends.
    """

    rank: int
    reader: int
    num_readers: int
    config: ResolvedConfig
    memory_plan: MemoryPlan
    address: str
    secret: bytes
    join_timeout_s: float
    log_level: int
    log_format: str
    dies_with_parent: bool


class Note(msgspec.Struct, tag=True, frozen=True):
    """Between all ranks, by way of rank 0: a word of `qanat.platforms.notes`."""

    key: str
    value: bytes


class AllJoined(msgspec.Struct, tag=True, frozen=True):
    """Rank 0 to all: the group is connected, and no more notes follow."""


ToRank = Note | AllJoined


class RankReport(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0, before it loads anything: who it is and what it computes with.

    Attributes:
        rank, pid: who.
        host, interface, address: where it runs, and over what the others reach it.
        versions: of what must be equal everywhere, by name.
        config_digest: SHA-256 of what decides about answers, as it understood it.
        available_bytes: memory that it could still take.
    """

    rank: int
    pid: int
    host: str
    interface: str
    address: str
    versions: dict[str, str]
    config_digest: str
    available_bytes: int


class RankJoined(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0: it is connected with all others."""


class RankLoaded(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0: its share of the model is loaded; it waits for batches."""


class RankFailed(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0: it ends.

    Attributes:
        code, message: of the error.
        is_consequence: an exchange with other ranks failed, so that one of those may be to blame.
        num_entered: exchanges that it had begun.
    """

    code: str
    message: str
    is_consequence: bool = False
    num_entered: int = 0


FromRank = RankReport | Note | RankJoined | RankLoaded | RankFailed


def framed(message: RankStart | ToRank | FromRank) -> bytes:
    """A message as it goes over a pipe or socket."""
    payload = msgspec.msgpack.encode(message)
    return len(payload).to_bytes(LENGTH_BYTES, "little") + payload


_KNOWN_TO_ALL = ("max_tokens", "prompt_logprobs", "temperature", "top_k", "top_p", "min_p")


def without_choices(batch: ScheduledBatch) -> ScheduledBatch:
    """What ranks that choose no tokens need to know of a batch: no forms, no penalties.

    They draft too, so they know how tokens are drawn and which of them end a row of accepted drafts.
    """
    if not batch.new_rows:
        return batch
    return msgspec.structs.replace(batch, new_rows=[_without_choices(new_row) for new_row in batch.new_rows])


def _without_choices(new_row: NewRow) -> NewRow:
    kept = {name: getattr(new_row.sampling, name) for name in _KNOWN_TO_ALL}
    return msgspec.structs.replace(new_row, sampling=SamplingParams(**kept), constraint=None)
