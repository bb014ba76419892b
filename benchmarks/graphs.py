"""What graphs save: tokens per second, and microseconds outside kernels per step, eagerly, in pieces, and whole.

    python benchmarks/graphs.py demo                          the demo model
    python benchmarks/graphs.py Qwen3.5-0.8B                  a published shape, or any config.json: random weights
    python benchmarks/graphs.py demo --batches 1 8 16 --steps 100 --rounds 5 --num-threads 2
    python benchmarks/graphs.py Qwen3.5-35B-A3B --quantization w4a8 --memory-share 0.98 --batches 1 8

All modes run in one process by turns; shown are medians of the rounds. A step is what the worker does: inputs, forward
pass, choice of tokens. Outside kernels is what of it is not spent inside native ops.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from qanat.bench.shapes import prepared_model
from qanat.config.engine_config import EngineConfig
from qanat.config.prepare import prepare
from qanat.core.batch import NewRow, ScheduledBatch, ScheduledRow
from qanat.core.sampling_params import SamplingParams
from qanat.executor.planning import plan_start
from qanat.kernels.native.module import native
from qanat.worker.worker import Worker

MODES = {"eager": "NONE", "piecewise": "PIECEWISE", "full": "FULL_DECODE_ONLY"}
PROMPT_TOKENS = 32
BLOCK_TOKENS = 64


class Decoding:
    """Requests that decode, one token each a step.

    Args:
        worker: computes.
        num_requests: how many.
        num_steps: most steps that will be asked for.
        freed_rows: rows that whoever used the worker before has left behind.
    """

    def __init__(self, worker: Worker, num_requests: int, num_steps: int, freed_rows: list[int]) -> None:
        self._worker, self._num_requests = worker, num_requests
        has_states = worker.memory_plan.num_states > 0
        num_blocks = -(-(PROMPT_TOKENS + num_steps) // BLOCK_TOKENS)
        sampling = SamplingParams(temperature=0.0, max_tokens=num_steps + 1, ignore_eos=True)
        for row in range(num_requests):
            new_row = NewRow(
                row=row,
                request_id=f"r{row}",
                token_ids=[5 + (row * 7 + i) % 200 for i in range(PROMPT_TOKENS)],
                num_prompt_tokens=PROMPT_TOKENS,
                num_computed_tokens=0,
                sampling=sampling,
                seed=0,
                choice_index=0,
                stop_token_ids=[],
                block_ids=list(range(1 + row * num_blocks, 1 + (row + 1) * num_blocks)),
                state_id=row + 1 if has_states else 0,
            )
            work = ScheduledRow(row, PROMPT_TOKENS, [])
            worker.execute(ScheduledBatch(0, freed_rows if row == 0 else [], [new_row], [work]))

    def step(self) -> tuple[float, float]:
        """One step: its seconds, and those of them that native ops took."""
        rows = [ScheduledRow(row, 1, []) for row in range(self._num_requests)]
        batch = ScheduledBatch(1, [], [], rows)
        busy_ns, start_s = native().busy_ns(), time.perf_counter()
        self._worker.execute(batch)
        spent_s = time.perf_counter() - start_s
        return spent_s, (native().busy_ns() - busy_ns) / 1e9


def load(arguments: argparse.Namespace) -> Worker:
    """The worker, with the demo model or random weights of a shape."""
    most = max(arguments.batches)
    wishes = EngineConfig(
        model=arguments.model,
        quantization=arguments.quantization,
        max_num_seqs=most,
        max_num_batched_tokens=max(256, most),
        max_model_len=PROMPT_TOKENS + arguments.steps * arguments.rounds + BLOCK_TOKENS,
        num_threads=arguments.num_threads,
        memory_share=arguments.memory_share,
        compilation_config={"cudagraph_mode": "FULL_DECODE_ONLY"},
    )
    with prepared_model(wishes) as known:
        prepared = prepare(known)
        start = plan_start(prepared.config, available_bytes=prepared.machine.available_bytes)
        worker = Worker(start.config, start.memory)
        worker.load()
    return worker


def measure(worker: Worker, batch: int, steps: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Of each mode: median seconds of a step, and of what lies outside kernels."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in MODES}
    for _ in range(rounds):
        for name, mode in MODES.items():
            worker.use_graphs(mode)
            decoding = Decoding(worker, batch, steps + 2, list(range(batch)))
            decoding.step()
            decoding.step()
            samples[name] += [decoding.step() for _ in range(steps)]
    return {
        name: (
            statistics.median(spent_s for spent_s, _ in found),
            statistics.median(spent_s - busy_s for spent_s, busy_s in found),
        )
        for name, found in samples.items()
    }


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", help="demo, name of a published model, a folder with a config.json, or such a file"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--steps", type=int, default=50, help="measured in each mode and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-threads", type=int, default=None)
    parser.add_argument("--quantization", default=None, help="w8a8 or w4a8, made of the random weights")
    parser.add_argument("--memory-share", type=float, default=None, help="of the memory that is available")
    arguments = parser.parse_args()
    worker = load(arguments)
    native().set_timed(True)
    sys.stdout.write("| batch | mode | tokens/s | step, us | outside kernels, us |\n")
    sys.stdout.write("| --- | --- | --- | --- | --- |\n")
    for batch in arguments.batches:
        for name, (step_s, outside_s) in measure(worker, batch, arguments.steps, arguments.rounds).items():
            row = (
                f"| {batch} | {name} | {batch / step_s:,.0f} | {step_s * 1e6:,.0f} | {outside_s * 1e6:,.1f} |"
            )
            sys.stdout.write(row + "\n")


if __name__ == "__main__":
    main()
