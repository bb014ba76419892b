"""Qanat as a process that answers lines: qanat_worker.py CONFIG THREADS [FLAG VALUE ...]."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from benchmarks.peers.workloads import Workload
from qanat.bench.latency import LatencyWish, time_batch
from qanat.bench.offline import session
from qanat.bench.requests import random_ids
from qanat.config.env import read_environment
from qanat.config.wishes import from_keywords
from qanat.worker.step_cost import StepShape, step_cost


def main(arguments: list[str]) -> int:
    """Loads the model, tells its facts, and answers."""
    model, num_threads, *flags = arguments
    values = dict(zip(flags[::2], flags[1::2], strict=True))
    keywords: dict[str, Any] = {name.lstrip("-"): value for name, value in values.items()}
    wishes = from_keywords(
        {
            "model": model,
            "num-threads": num_threads,
            "max-model-len": "1024",
            "max-num-seqs": "16",
            "load-format": "dummy",
            **keywords,
        }
    )
    with session(wishes, read_environment({}), has_limits=False) as opened:
        llm = opened.llm
        cost = step_cost(llm.config, llm.memory_plan, StepShape(1, 1, 64))
        prefill = step_cost(llm.config, llm.memory_plan, StepShape(1, 512, 512))
        _say(
            {
                "weight_bytes": cost.weight_bytes,
                "state_bytes": llm.memory_plan.state_bytes,
                "kv_bytes_per_token": llm.memory_plan.block_bytes / llm.memory_plan.block_size,
                "prefill_macs": prefill.float_macs + prefill.int8_macs,
                "is_integer": prefill.int8_macs > prefill.float_macs,
            }
        )
        for line in sys.stdin:
            _say(_answer(opened, Workload(**json.loads(line))))
    return 0


def _answer(opened: Any, workload: Workload) -> dict[str, float]:
    source = random.Random(0)
    prompts = [random_ids(workload.input_len, opened.num_ids, source) for _ in range(workload.batch_size)]
    wish = LatencyWish(
        input_len=workload.input_len,
        output_len=workload.output_len,
        batch_size=workload.batch_size,
        num_warmups=0,
        num_iters=1,
        temperature=0.0,
        is_detokenized=False,
    )
    batch = time_batch(opened, prompts, wish)
    return {"ttft_s": batch.ttft_s, "tpot_s": batch.tpot_s}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
