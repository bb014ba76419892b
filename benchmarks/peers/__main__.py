"""Compares Qanat with other engines on the same shape, workloads and threads: python -m benchmarks.peers --help.

Every round runs each workload once on each engine, one after the other, so that whatever disturbs the machine meets
them all; the limits of the machine are measured in every round too. Medians and spreads over the rounds are written
as Markdown. Engines that are not installed are named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.checkpoint import write_checkpoint
from benchmarks.peers.lines import LineWorker
from benchmarks.peers.llama_cpp import HERE, llama_cpp
from benchmarks.peers.machine import Shape, joined_limits, limit_of, limits_lines, measured
from benchmarks.peers.workloads import WORKLOADS, MissingPeerError, Peer, Workload
from qanat.bench.shapes import DEMO, known_shapes, raw_config
from qanat.config.machine import read_machine
from qanat.core.samples import Samples
from qanat.kernels.native.limits import Limits

READ_BYTES = 512 * 2**20
QANAT_FORMATS = {"W8A8": ("--quantization", "w8a8"), "W4A8": ("--quantization", "w4a8"), "bf16": ()}
LLAMA_FORMATS = ("Q8_0", "Q4_0")
# Without instructions for bf16 a processor is faster in fp32; vLLM's delta net takes bf16 only.
FLOAT_PEERS = (("transformers", "bf16"), ("transformers", "fp32"), ("vLLM", "bf16"))
NAMES = (
    *(f"Qanat {kind}" for kind in QANAT_FORMATS),
    *(f"llama.cpp {kind}" for kind in LLAMA_FORMATS),
    *(f"{name} {kind}" for name, kind in FLOAT_PEERS),
)


class WorkerPeer:
    """An engine behind a `LineWorker`."""

    def __init__(self, name: str, worker: LineWorker) -> None:
        self.name, self._worker = name, worker
        self.facts = worker.facts
        self.weight_bytes = int(self.facts["weight_bytes"])
        self.is_integer = bool(self.facts["is_integer"])
        self.tokens_per_s, self.close = worker.tokens_per_s, worker.close


def main(arguments: Sequence[str]) -> int:
    """Runs the comparison; returns the exit code."""
    options = _parser().parse_args(arguments)
    raw = shape_of(options.shape)
    folder = (
        Path(options.work_folder or tempfile.gettempdir()) / f"qanat-peers-{options.shape.replace('/', '-')}"
    )
    checkpoint = write_checkpoint(raw, folder)
    peers, shape, missing = start_peers(options, checkpoint)
    try:
        workloads = [each for each in WORKLOADS if not options.workloads or each.name in options.workloads]
        rates, limits, failed = run_rounds(peers, workloads, options)
    finally:
        for peer in peers:
            peer.close()
    lines = [*head(options), *table(peers, workloads, rates, shape, limits), "", *limits_lines(limits)]
    lines += [f"\nNot measured: {name}: {why}." for name, why in (*missing, *failed)]
    _write("\n".join(lines), options.output)
    return 0


def shape_of(name: str) -> dict[str, Any]:
    """The text part of a model's config.json: of the demo model, a published name, or a file."""
    if name in known_shapes():
        return raw_config(known_shapes()[name])
    if name == DEMO:
        import qanat_demo

        path = Path(qanat_demo.model_path()) / "config.json"
    else:
        path = Path(name)
    raw = json.loads(path.read_text(encoding="utf-8"))
    text = {**raw.get("text_config", raw), "tie_word_embeddings": raw.get("tie_word_embeddings", False)}
    [architecture] = raw["architectures"]
    causal = architecture.replace("ForConditionalGeneration", "ForCausalLM")
    return {**text, "architectures": [causal], "mtp_num_hidden_layers": 0}


def start_peers(
    options: argparse.Namespace, checkpoint: Path
) -> tuple[list[Peer], Shape, list[tuple[str, str]]]:
    """(engines, costs of the shape, what is missing and why); Qanat comes first and must be there."""
    threads = {"OMP_NUM_THREADS": str(options.threads), "PYTHONPATH": _python_path()}
    peers: list[Peer] = []
    missing: list[tuple[str, str]] = []

    def add(name: str, make: Callable[[], Peer]) -> None:
        if options.peers and name not in options.peers:
            return
        try:
            peers.append(make())
        except (MissingPeerError, RuntimeError, OSError, subprocess.SubprocessError) as error:
            missing.append((name, str(error)))

    for kind, flags in QANAT_FORMATS.items():
        log = checkpoint / f"qanat-{kind}.log"
        script = ("-m", "benchmarks.peers.qanat_worker")
        command = [sys.executable, *script, checkpoint / "config.json", str(options.threads), *flags]
        add(f"Qanat {kind}", lambda kind=kind, command=command, log=log: _qanat(kind, command, threads, log))
    for kind in LLAMA_FORMATS:
        add(
            f"llama.cpp {kind}",
            lambda kind=kind: llama_cpp(*_llama(options), checkpoint, kind, options.threads),
        )
    for name, kind in FLOAT_PEERS:
        add(f"{name} {kind}", lambda name=name, kind=kind: _elsewhere(name, kind, checkpoint, options))
    of_qanat = [peer for peer in peers if isinstance(peer, WorkerPeer) and "prefill_macs" in peer.facts]
    if not of_qanat:
        for peer in peers:
            peer.close()
        raise SystemExit(
            "The limits need a format of Qanat among the engines, and none was started. "
            + "; ".join(f"{name}: {why}" for name, why in missing)
        )
    return peers, Shape.of(of_qanat[0].facts), missing


def _qanat(kind: str, command: list[Any], variables: dict[str, str], log: Path) -> Peer:
    return WorkerPeer(f"Qanat {kind}", LineWorker(command, variables, log))


def _llama(options: argparse.Namespace) -> tuple[Path | None, Path | None, Path | None]:
    return options.llama_cpp, options.llama_cpp_source, options.peer_python


def _elsewhere(name: str, kind: str, checkpoint: Path, options: argparse.Namespace) -> Peer:
    python = options.vllm_python if name == "vLLM" else options.peer_python
    if python is None:
        raise MissingPeerError("no interpreter with it was named")
    variables = {
        "OMP_NUM_THREADS": str(options.threads),
        "PYTHONPATH": "",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    command = [python, HERE / f"{name.lower()}_worker.py", checkpoint, str(options.threads), kind]
    return WorkerPeer(f"{name} {kind}", LineWorker(command, variables, checkpoint / f"{name}-{kind}.log"))


def run_rounds(
    peers: Sequence[Peer], workloads: Sequence[Workload], options: argparse.Namespace
) -> tuple[dict[tuple[str, str], Samples], Limits, list[tuple[str, str]]]:
    """Rates by (engine, workload), the limits, and what an engine failed at; it is not asked for that again.

    One round before those that count warms up.
    """
    found: dict[tuple[str, str], list[float]] = {}
    failed: dict[tuple[str, str], str] = {}
    limits = []
    for number in range(options.rounds + 1):
        if number:
            limits.append(measured(options.threads, READ_BYTES))
        for workload in workloads:
            for peer in peers:
                key = (peer.name, workload.name)
                if key in failed:
                    continue
                try:
                    rate = peer.tokens_per_s(workload)
                except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                    failed[key] = str(error)
                    continue
                sys.stderr.write(f"round {number}: {workload.name}: {peer.name}: {rate:.2f} tokens/s\n")
                if number:
                    found.setdefault(key, []).append(rate)
    rates = {key: Samples.of(values) for key, values in found.items() if key not in failed}
    return rates, joined_limits(limits), [(", ".join(key), why) for key, why in failed.items()]


def head(options: argparse.Namespace) -> list[str]:
    """What the table must be read with."""
    machine = read_machine()
    return [
        f"Shape {options.shape} with random weights, {options.threads} threads of {machine.num_cores} cores "
        f"({machine.cpu_model or 'unknown'}, {platform.system()}), {options.rounds} rounds.\n"
    ]


def table(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    rates: dict[tuple[str, str], Samples],
    shape: Shape,
    limits: Limits,
) -> list[str]:
    """One line for each workload and engine."""
    lines = ["| workload | engine | tokens/s | spread | x llama.cpp Q8_0 | of its limit | limited by |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for workload in workloads:
        base = rates.get((f"llama.cpp {LLAMA_FORMATS[0]}", workload.name))
        for peer in peers:
            rate = rates.get((peer.name, workload.name))
            if rate is None:
                continue
            most, binds = limit_of(peer, workload, shape, limits)
            ratio = f"{rate.median / base.median:.2f}" if base is not None else "-"
            share = f"{rate.median / most:.0%} of {most:,.1f}" if binds else "-"
            lines.append(
                f"| {workload.name} | {peer.name} | {rate.median:,.2f} | {rate.spread:.0%} | {ratio} | {share} | "
                f"{binds or '-'} |"
            )
    return lines


def _python_path() -> str:
    return os.pathsep.join(path for path in sys.path if path)


def _write(text: str, output: Path | None) -> None:
    sys.stdout.write(text + "\n")
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--shape", default="Qwen3.5-0.8B", help="a published model's name, demo, or a config.json"
    )
    parser.add_argument("--threads", type=int, default=read_machine().num_cores, help="of every engine")
    parser.add_argument("--rounds", type=int, default=5, help="that count")
    names = [each.name for each in WORKLOADS]
    parser.add_argument(
        "--workloads", nargs="+", default=(), choices=names, metavar="NAME", help=f"of: {'; '.join(names)}"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        default=(),
        choices=NAMES,
        metavar="NAME",
        help=f"engines to run, one of Qanat among them, of: {'; '.join(NAMES)}; default: all",
    )
    parser.add_argument(
        "--llama-cpp", type=Path, help="folder with llama-bench, llama-batched-bench, llama-quantize"
    )
    parser.add_argument("--llama-cpp-source", type=Path, help="folder of its source, for the converter")
    parser.add_argument("--peer-python", type=Path, help="interpreter with torch and transformers")
    parser.add_argument("--vllm-python", type=Path, help="interpreter with vLLM's CPU build")
    parser.add_argument(
        "--work-folder", type=Path, help="for checkpoints and logs; default: the temporary folder"
    )
    parser.add_argument("--output", type=Path, help="file for the table, beside standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
