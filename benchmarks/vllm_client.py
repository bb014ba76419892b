"""`vllm bench serve` for benchmarks/bench_client.py, with the processor time of its run alone.

    python benchmarks/vllm_client.py CORE ARGUMENTS...

The arguments are those of `vllm bench serve`. The last line printed has tokens, seconds and seconds of processor time:
from the first request to the figures, without the start of the process, which imports torch.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

serve: Any = importlib.import_module("vllm.benchmarks.serve")
FlexibleArgumentParser: Any = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser


def main() -> int:
    """Runs the process."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    whole_run, spent_s = serve.benchmark, 0.0

    async def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal spent_s
        began_s = time.process_time()
        try:
            return await whole_run(*arguments, **named)
        finally:
            spent_s = time.process_time() - began_s

    serve.benchmark = timed
    result = serve.main(parser.parse_args(sys.argv[2:]))
    figures = {
        "num_tokens": result["total_output_tokens"],
        "wall_s": result["duration"],
        "cpu_s": spent_s,
    }
    sys.stdout.write("\n" + json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
