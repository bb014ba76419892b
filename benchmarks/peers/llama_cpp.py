"""llama.cpp: its own converter and quantiser make the file, its own benchmark programs measure."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.peers.workloads import PREFILL, MissingPeerError, Workload

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 1800


class LlamaCpp:
    """One quantisation of a checkpoint.

    Args:
        programs: folder with llama-bench, llama-batched-bench and llama-quantize.
        model: the GGUF file.
        kind: its quantisation, as llama-quantize calls it.
        num_threads: that compute.
    """

    is_integer = True

    def __init__(self, programs: Path, model: Path, kind: str, num_threads: int) -> None:
        self.name = f"llama.cpp {kind}"
        self.weight_bytes = model.stat().st_size
        self._programs, self._model, self._num_threads = programs, model, num_threads

    def tokens_per_s(self, workload: Workload) -> float:
        """llama-bench for one request, llama-batched-bench for several; each warms up by itself."""
        if workload.batch_size > 1:
            return self._batched(workload)
        is_prefill = workload.phase == PREFILL
        counts = ["-p", workload.input_len, "-n", 0] if is_prefill else ["-p", 0, "-n", workload.output_len]
        [result] = json.loads(self._run("llama-bench", *counts, "-r", 1, "-o", "json"))
        return float(result["avg_ts"])

    def close(self) -> None:
        """Nothing is kept running."""

    def _batched(self, workload: Workload) -> float:
        length = workload.input_len + workload.output_len
        lines = self._run(
            *("llama-batched-bench", "-c", workload.batch_size * length, "-npp", workload.input_len),
            *("-ntg", workload.output_len, "-npl", workload.batch_size, "--output-format", "jsonl"),
        )
        [result] = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
        return float(result["speed_pp" if workload.phase == PREFILL else "speed_tg"])

    def _run(self, program: str, *arguments: object) -> str:
        words = [str(self._programs / program), "-m", str(self._model), "-t", str(self._num_threads)]
        command = [*words, *map(str, arguments)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}: {result.stderr[-2000:]}")
        return result.stdout


def llama_cpp(
    programs: Path | None,
    source: Path | None,
    python: Path | None,
    checkpoint: Path,
    kind: str,
    num_threads: int,
) -> LlamaCpp:
    """Makes the file, unless it is there, and the peer.

    Args:
        programs: folder of the built programs; None where there are none.
        source: folder of llama.cpp's source, for its converter.
        python: interpreter with torch and transformers, for its converter.
        checkpoint: to convert; files are written beside its weights.
        kind: quantisation.
        num_threads: that compute.

    Raises:
        MissingPeerError: something is not there.
    """
    if programs is None or not (programs / "llama-bench").is_file():
        raise MissingPeerError("--llama-cpp names no folder with llama-bench")
    model = checkpoint / f"{kind}.gguf"
    if not model.is_file():
        plain = checkpoint / "bf16.gguf"
        if not plain.is_file():
            if source is None or python is None:
                raise MissingPeerError(
                    "--llama-cpp-source and --peer-python are needed to convert the checkpoint"
                )
            convert = [python, HERE / "convert_gguf.py", source, checkpoint, plain, "bf16"]
            subprocess.run([str(word) for word in convert], check=True, timeout=TIMEOUT_S)
        quantise = [programs / "llama-quantize", plain, model, kind]
        subprocess.run([str(word) for word in quantise], check=True, timeout=TIMEOUT_S, capture_output=True)
    return LlamaCpp(programs, model, kind, num_threads)
