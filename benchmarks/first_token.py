"""How long a server takes from its start to its first token: without packed weights, keeping them, and mapping them.

    python -m benchmarks.first_token [--model Qwen3.5-0.8B] [--quantization w8a8] [--num-threads N] [--repeat 3]

A name gives a checkpoint of that shape with random weights and the demo model's tokenizer, a folder is served as it is.
Each line of the table is a start of `qanat serve` with every file in the page cache: seconds until the process could
import torch and nothing else (a start of its own, beforehand), until /ready, until the first token of a streamed
completion, and that less the import of torch, which is what design.md bounds. Medians of the repeated starts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import qanat_demo
import torch
from safetensors.torch import save_file

from qanat.bench.shapes import known_shapes, raw_config
from qanat.config.model_config import ModelConfig
from qanat.models.registry import build_model

TIMEOUT_S = 600.0
LOOK_S = 0.005
KEPT = "Packed weights are kept for the next start"
LOADED = re.compile(r"parameters, .* MiB mapped.*?([\d.]+) s$", re.MULTILINE)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclass(frozen=True)
class Times:
    """Of one start, in seconds from the start of the process.

    Attributes:
        torch_s: of a process that only imports torch.
        ready_s: until the server says that it is ready.
        first_s: until the first token of the first request.
        load_s: of that, weights, by the engine's log.
    """

    torch_s: float
    ready_s: float
    first_s: float
    load_s: float

    @property
    def net_s(self) -> float:
        """What is added to the interpreter and torch."""
        return self.first_s - self.torch_s


def write_checkpoint(name: str, folder: Path) -> None:
    """A checkpoint with random weights in the shape of a published model."""
    shape = {known.lower(): facts for known, facts in known_shapes().items()}[name.lower()]
    (folder / "config.json").write_text(json.dumps(raw_config(shape)))
    for file in TOKENIZER_FILES:
        shutil.copy(Path(qanat_demo.model_path()) / file, folder / file)
    model = build_model(ModelConfig.from_folder(folder), torch.bfloat16, "meta")
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for own, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator) * parameter.info.dummy_std
        tensors[own] = (values + parameter.info.dummy_mean).to(parameter.dtype)
    save_file(tensors, folder / "model.safetensors")


def torch_s() -> float:
    """How long a process takes that only imports torch."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True)
    return time.monotonic() - begin


def measure(arguments: Sequence[str], cache: Path, *, awaits_kept: bool) -> Times:
    """Starts a server, asks it for a few tokens, and ends it.

    Args:
        arguments: of `qanat serve`.
        cache: folder for packed weights.
        awaits_kept: wait until packed weights are written before the server is ended.
    """
    plain_s = torch_s()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "qanat",
        "serve",
        *arguments,
        "--port",
        str(port),
        "--cache-dir",
        str(cache),
    ]
    with tempfile.NamedTemporaryFile("w+") as log:
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=dict(os.environ))
        try:
            ready_s = _await_ready(url, begin, process, log.name)
            first_s = _first_token(url, begin)
            while awaits_kept and KEPT not in Path(log.name).read_text():
                _check(begin, process, log.name)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        loaded = LOADED.search(Path(log.name).read_text())
    return Times(plain_s, ready_s, first_s, float(loaded[1]) if loaded else float("nan"))


def _await_ready(url: str, begin: float, process: subprocess.Popen[bytes], log: str) -> float:
    with httpx.Client(timeout=1) as client:
        while True:
            try:
                if client.get(f"{url}/ready").status_code == 200:
                    return time.monotonic() - begin
            except httpx.TransportError:
                pass
            _check(begin, process, log)


def _first_token(url: str, begin: float) -> float:
    body = {
        "model": "bench",
        "prompt": "The future of AI is",
        "max_tokens": 2,
        "temperature": 0,
        "stream": True,
    }
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=TIMEOUT_S) as reply:
        reply.raise_for_status()
        first_s = 0.0
        for line in reply.iter_lines():
            if line.startswith("data: {") and not first_s:
                first_s = time.monotonic() - begin
        return first_s


def _check(begin: float, process: subprocess.Popen[bytes], log: str) -> None:
    if process.poll() is not None or time.monotonic() - begin > TIMEOUT_S:
        raise SystemExit(f"the server did not get there:\n{Path(log).read_text()}")
    time.sleep(LOOK_S)


def run(model: Path, options: argparse.Namespace, work: Path) -> None:
    """Measures and prints the table."""
    arguments = [str(model), "--served-model-name", "bench", "--max-model-len", "4096"]
    if options.quantization:
        arguments += ["--quantization", options.quantization]
    if options.num_threads:
        arguments += ["--num-threads", str(options.num_threads)]
    found: dict[str, list[Times]] = {"read and packed": [], "the same, and kept": [], "mapped": []}
    for turn in range(options.repeat):
        cache = work / f"cache-{turn}"
        found["read and packed"].append(
            measure([*arguments, "--no-packed-weights-cache"], cache, awaits_kept=False)
        )
        found["the same, and kept"].append(measure(arguments, cache, awaits_kept=True))
        found["mapped"].append(measure(arguments, cache, awaits_kept=False))
        shutil.rmtree(cache)
    sys.stdout.write(
        "| weights | import torch | loading | ready | first token | less torch |\n| --- "
        + "| ---: " * 5
        + "|\n"
    )
    for name, times in found.items():
        columns = [
            statistics.median(getattr(each, part) for each in times)
            for part in ("torch_s", "load_s", "ready_s", "first_s", "net_s")
        ]
        sys.stdout.write(f"| {name} | " + " | ".join(f"{value:.2f} s" for value in columns) + " |\n")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="Qwen3.5-0.8B", help="folder, or name of a published model")
    parser.add_argument("--quantization", default="", help="as for qanat serve")
    parser.add_argument("--num-threads", type=int, default=0, help="as for qanat serve")
    parser.add_argument("--repeat", type=int, default=3, help="starts of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qanat-first-token-") as work:
        folder = Path(options.model)
        if not folder.is_dir():
            folder = Path(work) / "model"
            folder.mkdir()
            write_checkpoint(options.model, folder)
        run(folder, options, Path(work))


if __name__ == "__main__":
    main()
