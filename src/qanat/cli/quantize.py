"""`qanat quantize`: a quantised checkpoint from a plain one, or the check of one that was written."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from qanat.cli.command import Command, help_parser, wants_help
from qanat.cli.reading import read_action
from qanat.cli.terminal import echo, require_engine, tell
from qanat.config.machine import read_machine
from qanat.config.options import option
from qanat.config.quantization import AT_LOAD
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.conversion.convert import Calibrate, Converted

FAILED = 1
"""Exit code where a file is not as it was written."""


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """Quantize."""

    scheme: str | None = option(
        Kind.TEXT,
        None,
        "w8a8: int8 weights. w4a8: int4 weights in groups of 32 inputs, head and embedding int8. Activations are int8.",
        choices=AT_LOAD,
    )
    calibrate: str | None = option(
        Kind.TEXT,
        None,
        "File with texts that the model shall see: JSON lines with messages, prompt or text, or one plain text a line. "
        "Scales are then chosen for the inputs that these texts give. Default: all inputs count alike.",
    )
    calibration_tokens: int = option(
        Kind.COUNT, 8192, "Read so many tokens of the calibration file.", minimum=1, maximum=1 << 20
    )
    max_shard_size: int = option(
        Kind.BYTES, 4 << 30, "Largest weight file, in bytes or as 4GiB.", minimum=1 << 16
    )
    num_threads: int | None = option(
        Kind.COUNT, None, "Threads that work. Default: the cores that this process may use.", minimum=1
    )
    verify: bool = option(Kind.SWITCH, False, "Only check the files of a folder that this command wrote.")
    json: bool = option(Kind.SWITCH, False, "Write JSON.")


COMMAND = Command(
    name="quantize",
    summary="Write a quantised checkpoint, or check one.",
    description=(
        "Reads the plain checkpoint in the folder IN and writes a quantised one, in the format of Ascend's tools, to\n"
        "the new folder OUT: weights in int8 or int4, each scale searched for the smallest error. Works tensor by\n"
        "tensor, so that memory does not grow with the model. OUT is there once it is complete; what an interrupted\n"
        "run has finished lies in OUT.partial, and the same command goes on from there.\n"
        "Exit codes: 0 done or as written, 1 failed or not as written, 2 the command line is at fault."
    ),
    examples=(
        "qanat quantize ./Qwen3.5-0.8B ./Qwen3.5-0.8B-w8a8 --scheme w8a8",
        "qanat quantize ./Qwen3.5-35B-A3B ./Qwen3.5-35B-A3B-w4a8 --scheme w4a8 --calibrate chats.jsonl",
        "qanat quantize --verify ./Qwen3.5-0.8B-w8a8",
    ),
    groups=(),
    own=QuantizeOptions,
    word="IN OUT",
    word_help="Folder of the plain checkpoint, and the new folder; with --verify only the latter.",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat quantize`; returns the exit code.

    Raises:
        QanatError: something cannot be read or written, or must not be.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    options, words = read_action(COMMAND, QuantizeOptions, arguments)
    require_engine(COMMAND.name)
    if options.verify:
        return _verify(words, options)
    if len(words) != 2:
        raise ConfigError(
            f"qanat quantize takes two folders, IN and OUT, got {len(words)}: qanat quantize IN OUT --scheme w8a8"
        )
    if options.scheme is None:
        raise ConfigError(f"--scheme is missing: {' or '.join(AT_LOAD)}.", param="--scheme")
    source = Path(words[0]).expanduser()
    if not (source / "config.json").is_file():
        raise ConfigError(f"IN {source} is no folder of a checkpoint: it has no config.json.")
    return _convert(source, Path(words[1]).expanduser(), options)


def _convert(source: Path, out: Path, options: QuantizeOptions) -> int:
    from qanat.cli.quantize_bar import QuantizeBar
    from qanat.conversion.convert import Order, Watcher, convert
    from qanat.kernels.providers import choose_providers

    num_threads = options.num_threads or read_machine().num_cores
    choose_providers(num_threads)
    with QuantizeBar(is_shown=not options.json) as bar:
        calibrate, digest = _calibration(source, options, num_threads)
        order = Order(
            source=source,
            out=out,
            scheme=options.scheme or "",
            max_shard_bytes=options.max_shard_size,
            num_threads=num_threads,
            calibrate=calibrate,
            calibration=digest,
        )
        done = convert(order, Watcher(bar.start, bar.advance, tell, bar.check, bar.advance))
    _show(done, options)
    return 0


def _calibration(source: Path, options: QuantizeOptions, num_threads: int) -> tuple[Calibrate | None, str]:
    if options.calibrate is None:
        return None, ""
    from qanat.cli.quantize_texts import Calibration

    path = Path(options.calibrate).expanduser()
    calibration = Calibration(source, path, options.calibration_tokens, num_threads)
    return calibration.measure, calibration.digest


def _verify(words: Sequence[str], options: QuantizeOptions) -> int:
    from qanat.cli.quantize_bar import QuantizeBar
    from qanat.conversion.verify import verify_folder

    if len(words) != 1:
        raise ConfigError("--verify takes one folder: qanat quantize --verify OUT", param="--verify")
    folder = Path(words[0]).expanduser()
    with QuantizeBar(is_shown=not options.json) as bar:
        found = verify_folder(folder, bar.advance, bar.check)
    if options.json:
        _write_json({"folder": str(folder), **msgspec.to_builtins(found)})
    elif found.faults:
        for fault in found.faults:
            echo(f"FAULT  {fault}")
        echo(
            f"{folder}: {len(found.faults)} of {found.num_files} files are not as they were written; write it anew."
        )
    else:
        echo(
            f"{folder}: {found.num_files} files, {found.size_bytes / 2**30:.3f} GiB, all as they were written"
        )
    return FAILED if found.faults else 0


def _show(done: Converted, options: QuantizeOptions) -> None:
    from qanat.conversion.error_report import by_part

    groups = by_part(done.errors)
    if options.json:
        about = {
            "out": str(done.out),
            "scheme": options.scheme,
            "num_files": done.num_files,
            "num_files_kept": done.num_kept,
            "num_tensors": done.num_tensors,
            "num_matrices": len(done.errors),
            "source_bytes": done.source_bytes,
            "size_bytes": done.size_bytes,
            "duration_s": round(done.duration_s, 2),
            "errors": msgspec.to_builtins(groups),
        }
        _write_json(about)
        return
    from rich.console import Console

    from qanat.cli.quantize_bar import error_table

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110)
    console.print(error_table(groups))
    share = done.size_bytes / done.source_bytes
    echo(
        f"{done.out}: {len(done.errors)} matrices quantised, {done.num_tensors} tensors in {done.num_files} files, "
        f"{done.source_bytes / 2**20:.1f} MiB became {done.size_bytes / 2**20:.1f} MiB ({share:.0%}), "
        f"{done.duration_s:.1f} s"
    )
    echo(f"Serve it: qanat serve {done.out}")


def _write_json(value: object) -> None:
    echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
