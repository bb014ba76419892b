"""What rank 0 and the other ranks of one host tell each other: msgpack, and never a tensor."""

from __future__ import annotations

import hashlib
import os
import platform
import socket

import msgspec
import torch

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import NewRow, ScheduledBatch
from qanat.core.errors import EngineDeadError
from qanat.core.memory_plan import MemoryPlan
from qanat.core.sampling_params import SamplingParams

LENGTH_BYTES = 8
"""Size of the little-endian length before each message on a pipe or socket."""


class RankStart(msgspec.Struct, frozen=True):
    """Rank 0 to another one, on its standard input: all that it needs to start.

    Attributes:
        rank: of the one that is told.
        config: the resolved configuration, with its number of ranks.
        memory_plan: what each rank allocates.
        meeting_port: where the ranks meet, on the loopback interface.
        join_timeout_s: all of them must have come within this.
        log_level, log_format: how it writes its log.
    """

    rank: int
    config: ResolvedConfig
    memory_plan: MemoryPlan
    meeting_port: int
    join_timeout_s: float
    log_level: int
    log_format: str


class RankReport(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0, before it loads anything: who it is and what it computes with.

    Attributes:
        rank, pid: who.
        host, address: where it runs, and the address under which the others reach it.
        versions: of what must be equal everywhere, by name.
        config_digest: SHA-256 of the configuration as it understood it.
        available_bytes: memory that it could still take.
    """

    rank: int
    pid: int
    host: str
    address: str
    versions: dict[str, str]
    config_digest: str
    available_bytes: int


class RankLoaded(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0: its share of the model is loaded; it waits for batches."""


class RankFailed(msgspec.Struct, tag=True, frozen=True):
    """A rank to rank 0: it ends; code and message of the error."""

    code: str
    message: str


FromRank = RankReport | RankLoaded | RankFailed


def report_of(rank: int, config: ResolvedConfig, address: str, available_bytes: int) -> RankReport:
    """This process's own report."""
    from qanat import __version__

    return RankReport(
        rank=rank,
        pid=os.getpid(),
        host=socket.gethostname(),
        address=address,
        versions={
            "qanat": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        config_digest=hashlib.sha256(msgspec.msgpack.encode(config)).hexdigest(),
        available_bytes=available_bytes,
    )


def check_report(own: RankReport, other: RankReport) -> None:
    """Compares another rank's report with that of rank 0.

    Raises:
        EngineDeadError: they would not compute the same; names what differs.
    """
    differences = [
        f"{name} {other.versions.get(name, 'unknown')} instead of {version}"
        for name, version in own.versions.items()
        if other.versions.get(name) != version
    ]
    if other.config_digest != own.config_digest:
        differences.append(f"configuration {other.config_digest[:12]} instead of {own.config_digest[:12]}")
    if differences:
        raise EngineDeadError(
            f"Rank {other.rank} (process {other.pid} on {other.host}) does not match rank 0: it has "
            f"{', '.join(differences)}. Install the same versions everywhere and start again."
        )


def without_choices(batch: ScheduledBatch) -> ScheduledBatch:
    """What ranks that choose no tokens need to know of a batch: no forms, no penalties, no stop ids."""
    if not batch.new_rows:
        return batch
    return msgspec.structs.replace(batch, new_rows=[_without_choices(new_row) for new_row in batch.new_rows])


def _without_choices(new_row: NewRow) -> NewRow:
    sampling = SamplingParams(
        max_tokens=new_row.sampling.max_tokens, prompt_logprobs=new_row.sampling.prompt_logprobs
    )
    return msgspec.structs.replace(new_row, sampling=sampling, stop_token_ids=[], constraint=None)
