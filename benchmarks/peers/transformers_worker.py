"""transformers as a process that answers lines; runs in that library's own environment, without Qanat.

transformers_worker.py CHECKPOINT THREADS bf16|fp32
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def main(arguments: list[str]) -> int:
    """Loads the model, tells its facts, and answers."""
    folder, num_threads, kind = arguments
    torch.set_num_threads(int(num_threads))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[kind]).eval()
    size_bytes = sum(weight.nbytes for weight in model.parameters())
    _say({"weight_bytes": size_bytes, "is_integer": False})
    for line in sys.stdin:
        workload = json.loads(line)
        with torch.inference_mode():
            _say(_answer(model, workload))
    return 0


def _answer(model: Any, workload: dict[str, Any]) -> dict[str, float]:
    """Greedy decoding with the library's own cache; the prompt's last scores alone are computed."""
    shape = (workload["batch_size"], workload["input_len"])
    ids = torch.randint(min(model.config.vocab_size, 1000), shape)
    start = time.perf_counter()
    out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    token = out.logits[:, -1].argmax(-1, keepdim=True)
    first = time.perf_counter()
    for _ in range(workload["output_len"] - 1):
        out = model(input_ids=token, past_key_values=out.past_key_values, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1].argmax(-1, keepdim=True)
    end = time.perf_counter()
    return {"ttft_s": first - start, "tpot_s": (end - first) / max(workload["output_len"] - 1, 1)}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
