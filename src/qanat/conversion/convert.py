"""From a plain checkpoint to a quantised one: planned whole, written file by file, there only once it is complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from qanat.config.model_config import ModelConfig
from qanat.config.quantization import checkpoint_quantization
from qanat.conversion.error_report import MatrixError
from qanat.conversion.journal import VERSION, Inputs, Workplace, sha256_of
from qanat.conversion.measure import Activations
from qanat.conversion.outline import outline
from qanat.conversion.shard_writer import WrittenShard, write_shard
from qanat.conversion.shards import INDEX_NAME, ShardPlan, description_of, index_of, plan_shards
from qanat.conversion.target import (
    aside_of,
    check_room,
    check_target,
    files_beside,
    finish,
    reading,
    source_digest,
)
from qanat.conversion.threads import torch_threads
from qanat.core.errors import ConfigError, ConversionError
from qanat.kernels.quantised import GROUP_SIZE
from qanat.models.checkpoint import Checkpoint, open_checkpoint
from qanat.quant.own import Precision

DESCRIPTION_NAME = "quant_model_description.json"
REPORT_NAME = "quantization_report.json"
DEFAULT_SHARD_BYTES = 4 << 30

Calibrate = Callable[[Path], Mapping[str, Activations]]
"""Given the folder of the work, where results may be kept: activations by `Piece.inputs`."""


@dataclass(frozen=True)
class Order:
    """What is to be done.

    Attributes:
        source: folder of a plain checkpoint.
        out: folder that is written.
        scheme: one of `qanat.config.quantization.AT_LOAD`.
        max_shard_bytes: largest weight file.
        num_threads: that quantise.
        calibrate: measures activations; None counts all inputs alike.
        calibration: digest of what it measures with; empty without.
    """

    source: Path
    out: Path
    scheme: str
    max_shard_bytes: int = DEFAULT_SHARD_BYTES
    num_threads: int = 1
    calibrate: Calibrate | None = None
    calibration: str = ""


@dataclass
class Watcher:
    """Told how far the work is.

    Attributes:
        check: called with the bytes of files that an earlier run finished, before they are read to be checked.
        checked: called with bytes of them that have been read.
        total: called with (bytes of the source in all, those that an earlier run dealt with).
        advance: called with bytes dealt with.
        say: called with a sentence.
    """

    total: Callable[[int, int], None] = lambda total, done: None
    advance: Callable[[int], None] = lambda size_bytes: None
    say: Callable[[str], None] = lambda text: None
    check: Callable[[int], None] = lambda size_bytes: None
    checked: Callable[[int], None] = lambda size_bytes: None


@dataclass(frozen=True)
class Converted:
    """What was done.

    Attributes:
        out: the folder.
        num_tensors, num_files: written; weight files only.
        num_kept: weight files that an earlier run had finished.
        source_bytes, size_bytes: of all weights, before and after.
        errors: of every quantised matrix.
        duration_s: of this run.
    """

    out: Path
    num_tensors: int
    num_files: int
    num_kept: int
    source_bytes: int
    size_bytes: int
    errors: tuple[MatrixError, ...] = field(repr=False)
    duration_s: float


def convert(order: Order, watcher: Watcher | None = None) -> Converted:
    """Writes the quantised checkpoint, or goes on with writing it.

    Raises:
        ConfigError: the target must not be written, or holds the work of another conversion.
        CheckpointError: the source is broken, quantised already, or has a weight that is not finite.
        CapacityError: the disk has no room; a folder that was not there is not made then.
        ConversionError: something cannot be read or written.
    """
    begin = time.monotonic()
    watcher = watcher or Watcher()
    check_target(order.source, order.out)
    config = ModelConfig.from_folder(order.source)
    _refuse_quantised(order.source, config)
    checkpoint = open_checkpoint(order.source)
    shards = plan_shards(outline(checkpoint, config, order.scheme), order.max_shard_bytes)
    digest = source_digest(order.source)
    inputs = Inputs(VERSION, order.scheme, digest, order.calibration, order.max_shard_bytes)
    if not aside_of(order.out).exists():
        _check_room(order, shards)
    try:
        with Workplace(aside_of(order.out), inputs) as place:
            kept = _kept(place, shards, watcher)
            written = _write_all(order, place, shards, checkpoint, kept, watcher)
            if source_digest(order.source) != digest:
                raise ConversionError(
                    f"{order.source} has changed meanwhile; remove {place.folder} and begin anew"
                )
            _finish(order, place, shards, written)
    except OSError as error:
        raise ConversionError(
            f"{error.filename or aside_of(order.out)} cannot be written: {error.strerror or error}. Finished files are "
            "kept: once that is mended, the same command goes on from there."
        ) from error
    return Converted(
        out=order.out,
        num_tensors=sum(len(shard.outputs) for shard in shards),
        num_files=len(shards),
        num_kept=len(kept),
        source_bytes=sum(shard.source_bytes for shard in shards),
        size_bytes=sum(each.size_bytes for each in written),
        errors=tuple(error for each in written for error in each.errors),
        duration_s=time.monotonic() - begin,
    )


def _refuse_quantised(folder: Path, config: ModelConfig) -> None:
    found = checkpoint_quantization(folder, config)
    if found:
        raise ConfigError(
            f"IN {folder} is quantised already ({found}); serve it as it is, or give the model's bfloat16 checkpoint."
        )


def _kept(place: Workplace, shards: Sequence[ShardPlan], watcher: Watcher) -> dict[str, WrittenShard]:
    """Weight files of an earlier run that are as it left them."""
    sizes = {shard.name: shard.size_bytes for shard in shards}
    watcher.check(sum(each.size_bytes for each in place.finished))
    kept = {}
    for each in place.finished:
        path = place.folder / each.name
        is_whole = path.is_file() and path.stat().st_size == sizes.get(each.name)
        if is_whole and sha256_of(path, watcher.checked) == each.sha256:
            kept[each.name] = each
        else:
            watcher.say(f"{each.name} is not as it was written, and is written again")
            path.unlink(missing_ok=True)
    if kept:
        watcher.say(f"goes on with an interrupted conversion: {len(kept)} of {len(shards)} files are there")
    return kept


def _write_all(
    order: Order,
    place: Workplace,
    shards: Sequence[ShardPlan],
    checkpoint: Checkpoint,
    kept: Mapping[str, WrittenShard],
    watcher: Watcher,
) -> tuple[WrittenShard, ...]:
    """Writes the weight files that are not there yet; returns all, in order."""
    missing = [shard for shard in shards if shard.name not in kept]
    place.clear_unfinished()
    _check_room(order, missing)
    place.record(tuple(kept.values()))
    activations: Mapping[str, Activations] = {}
    if missing and order.calibrate is not None:
        activations = order.calibrate(place.folder)
    total = sum(shard.source_bytes for shard in shards)
    watcher.total(total, total - sum(shard.source_bytes for shard in missing))
    done = dict(kept)
    for shard in missing:
        with torch_threads(1):
            done[shard.name] = write_shard(
                shard, place.folder, checkpoint, activations, order.num_threads, watcher.advance
            )
        place.record(tuple(done.values()))
    return tuple(done[shard.name] for shard in shards)


def _check_room(order: Order, shards: Sequence[ShardPlan]) -> None:
    """Refuses to begin if the disk cannot hold these weight files and what is copied."""
    with reading(order.source):
        beside_bytes = sum(path.stat().st_size for path in files_beside(order.source))
    check_room(aside_of(order.out), sum(shard.size_bytes for shard in shards) + beside_bytes)


def _finish(
    order: Order, place: Workplace, shards: Sequence[ShardPlan], written: Sequence[WrittenShard]
) -> None:
    precisions = {piece.precision for shard in shards for piece in shard.pieces}
    is_grouped = Precision.INT4 in precisions
    highest = Precision.INT4 if is_grouped else Precision.INT8
    errors = [error for each in written for error in each.errors]
    report = {"scheme": order.scheme, "is_calibrated": order.calibrate is not None, "matrices": errors}
    made = {
        INDEX_NAME: _json(index_of(shards)),
        DESCRIPTION_NAME: _json(description_of(shards, highest.ascend_kind, GROUP_SIZE if is_grouped else 0)),
        REPORT_NAME: _json(report),
    }
    finish(place.folder, order.out, order.source, made, {each.name: each.sha256 for each in written})


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
