"""vLLM's CPU build as a process that answers lines; runs in that package's own environment, without Qanat.

vllm_worker.py CHECKPOINT THREADS bf16
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams

DTYPES = {"bf16": "bfloat16"}
MAX_LEN = 1024
# For a second after a step its processes look for work without sleeping, at the cost of whoever is measured next.
REST_S = 1.5


def main(arguments: list[str]) -> int:
    """Loads the model, tells its facts, and answers."""
    folder, _, kind = arguments  # VLLM_CPU_OMP_THREADS_BIND and OMP_NUM_THREADS hold the threads
    llm = LLM(
        model=folder,
        dtype=DTYPES[kind],
        skip_tokenizer_init=True,
        max_model_len=MAX_LEN,
        max_num_batched_tokens=MAX_LEN,  # its start runs a step of so many
        max_num_seqs=16,
        enable_prefix_caching=False,
    )
    size_bytes = sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))
    _say({"weight_bytes": size_bytes, "is_integer": False})
    for line in sys.stdin:
        answer = _answer(llm, json.loads(line))
        time.sleep(REST_S)
        _say(answer)
    return 0


def _answer(llm: LLM, workload: dict[str, Any]) -> dict[str, float]:
    """The time of one token is the first token's; what further ones take longer is shared among them."""
    source = random.Random(0)
    prompts = [
        {"prompt_token_ids": source.choices(range(1000), k=workload["input_len"])}
        for _ in range(workload["batch_size"])
    ]
    first_s = _seconds(llm, prompts, 1)
    num_further = workload["output_len"] - 1
    further_s = _seconds(llm, prompts, workload["output_len"]) - first_s if num_further else 0.0
    return {"ttft_s": first_s, "tpot_s": further_s / max(num_further, 1)}


def _seconds(llm: LLM, prompts: list[Any], num_tokens: int) -> float:
    sampling = SamplingParams(temperature=0, ignore_eos=True, max_tokens=num_tokens, detokenize=False)
    start = time.perf_counter()
    llm.generate(prompts, sampling, use_tqdm=False)
    return time.perf_counter() - start


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
