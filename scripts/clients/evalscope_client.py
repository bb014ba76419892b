"""evalscope against a server: evalscope_client.py BASE_URL MODEL WORK_FOLDER. Its load test and its evaluation.

The evaluation takes a local file of questions, as nothing may be fetched.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import sums

VERSION = importlib.metadata.version("evalscope")
NUM_REQUESTS = 12


def load_test(base_url: str, model: str, folder: Path) -> None:
    """`evalscope perf` over a file of prompts: every request succeeds."""
    from evalscope.perf.arguments import Arguments
    from evalscope.perf.main import run_perf_benchmark

    path = folder / "prompts.txt"
    path.write_text("\n".join(chat["question"] for chat in sums.chats() * 2))
    arguments = Arguments(
        url=f"{base_url}/v1/chat/completions",
        model=model,
        api="openai",
        dataset="line_by_line",
        dataset_path=str(path),
        number=NUM_REQUESTS,
        parallel=4,
        max_tokens=64,
        stream=True,
        outputs_dir=str(folder / "perf"),
        no_test_connection=True,
    )
    results = json.dumps(run_perf_benchmark(arguments), default=str)
    assert f"succeed_requests={NUM_REQUESTS} failed_requests=0" in results, results[:800]


def evaluation(base_url: str, model: str, folder: Path) -> None:
    """`general_qa` over our own questions: an answer for each."""
    from evalscope import TaskConfig, run_task

    data = folder / "data"
    data.mkdir()
    rows = [{"query": chat["question"], "response": chat["answer"]} for chat in sums.chats()]
    (data / "sums.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    config = TaskConfig(
        model=model,
        api_url=f"{base_url}/v1",
        api_key="none",
        eval_type="openai_api",
        datasets=["general_qa"],
        dataset_args={"general_qa": {"local_path": str(data), "subset_list": ["sums"]}},
        generation_config={"max_tokens": 256, "temperature": 0.0},
        eval_batch_size=4,
        work_dir=str(folder / "eval"),
    )
    results: Any = run_task(config)
    assert str(len(rows)) in str(results), str(results)[:800]


def main() -> int:
    """Runs both; the exit code is 1 if one failed."""
    base_url, model, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name, check in (("perf", load_test), ("general_qa", evaluation)):
        try:
            check(base_url, model, folder)
            print(f"evalscope {VERSION} {name}: ok")
        except Exception as error:
            failed = True
            print(f"evalscope {VERSION} {name}: FAILED: {error!r}"[:600])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
