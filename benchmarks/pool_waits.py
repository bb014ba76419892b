"""How long a decode step waits at the meetings of its threads, by op, and what the threads compute of it.

    pool_waits.py [--model FOLDER] [--load-format dummy] [--quantization w8a8] [--num-threads N] [--batch-size N]
                  [--tokens N]

A line is a function of the native module that gives jobs to the threads. `waits` is the part of the step in which the
thread that called had nothing left to do and others had not finished: no op may spend more than 5 % of a step so, and
the exit code is 1 if one does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping

from qanat import LLM, SamplingParams
from qanat.kernels.native.module import PoolWaits, count_pool_waits, pool_waits

MOST_WAIT = 0.05
"""Part of a step that an op may wait."""


def show(line: str) -> None:
    """Writes a line of the table."""
    sys.stdout.write(line + "\n")


def waiting_too_long(waits: Mapping[str, PoolWaits], elapsed_s: float) -> list[str]:
    """The ops that waited for more than `MOST_WAIT` of that time."""
    return [name for name, own in waits.items() if own.wait_s > MOST_WAIT * elapsed_s]


def main() -> int:
    """Decodes twice, without and with counting, and prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo/src/qanat_demo/model")
    parser.add_argument("--load-format", default="auto")
    parser.add_argument(
        "--quantization", default=None, help="w8a8 or w4a8, made while the weights are loaded"
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    wish = parser.parse_args()
    llm = LLM(
        wish.model,
        load_format=wish.load_format,
        quantization=wish.quantization,
        dtype=wish.dtype,
        num_threads=wish.num_threads,
        enable_prefix_caching=False,
    )
    prompts = [[5 + i, 6, 7] for i in range(wish.batch_size)]
    sampling = SamplingParams(temperature=0, max_tokens=wish.tokens, ignore_eos=True)
    llm.generate(prompts, sampling)
    count_pool_waits(True)
    start = time.perf_counter()
    llm.generate(prompts, sampling)
    elapsed_s = time.perf_counter() - start
    waits = pool_waits()
    show(
        f"{1e6 * elapsed_s / wish.tokens:.0f} us a step, {wish.num_threads} threads, batch {wish.batch_size}"
    )
    show(f"{'op':18} {'jobs/step':>9} {'shared':>7} {'of step':>8} {'waits':>7} {'busy':>6}")
    for name, own in sorted(waits.items(), key=lambda item: -item[1].elapsed_s):
        busy = own.busy_s / (own.elapsed_s * wish.num_threads)
        show(
            f"{name:18} {own.num_jobs / wish.tokens:9.1f} {own.num_shared / own.num_jobs:7.0%} "
            f"{own.elapsed_s / elapsed_s:8.1%} {own.wait_s / elapsed_s:7.2%} {busy:6.0%}"
        )
    late = waiting_too_long(waits, elapsed_s)
    if late:
        show(f"More than {MOST_WAIT:.0%} of a step: {', '.join(late)}")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
