"""A vllm that says what a real one says while it starts, then serves a small OpenAI API.

fake_vllm.py SCENARIO serve MODEL --port N ...; SCENARIO is a JSON file: {"end_at": stage, "how": "die" or "hang"},
and "name" for another model than asked for. As a proxy it serves at once, with /healthcheck.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.support import small_service

LINES = {
    "start": "(APIServer pid=71) INFO 11-17 08:12:05 [api_server.py:1896] vLLM API server version 0.23.0",
    "connect": "(Worker pid=131) INFO 11-17 08:12:58 [parallel_state.py:1445] rank 0 in world size 2 is assigned as "
    "DP rank 0, PP rank 0, TP rank 0, EP rank 0",
    "load": "(Worker_TP0 pid=131) INFO 11-17 08:13:02 [model_runner_v1.py:2180] Starting to load model /weights/a...",
    "cache": "(EngineCore_DP0 pid=92) INFO 11-17 08:15:02 [kv_cache_utils.py:1087] GPU KV cache size: 524,288 tokens",
    "capture": "Capturing CUDA graphs (decode, FULL):  50%|#####     | 3/6 [00:09<00:09,  3.01s/it]",
    "ready": "(APIServer pid=71) INFO:     Application startup complete.",
}
DEATHS = {
    "load": "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.96 GiB total capacity; "
    "58.10 GiB already allocated; 58.10 GiB current active; 1.02 GiB free; 58.80 GiB reserved in total by PyTorch)",
    "capture": "RuntimeError: Do not support TASK_QUEUE_ENABLE = 2 during NPU graph capture, please export "
    "TASK_QUEUE_ENABLE=1/0.",
}


def say(text: str) -> None:
    """Writes a line, and waits until it is in the log, which another process writes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    log = os.environ.get("LOG_FILE")
    while log and text not in Path(log).read_text():
        time.sleep(0.005)


def main() -> int:
    if "--prefiller-hosts" in sys.argv:
        sys.argv = ["small_service.py", sys.argv[sys.argv.index("--port") + 1], "qwen3.5", "256"]
        return small_service.main({"/healthcheck": small_service.well})
    scenario = json.loads(Path(sys.argv[1]).read_text())
    words = sys.argv[2:]
    name = scenario.get("name") or words[words.index("--served-model-name") + 1]
    for stage, line in LINES.items():
        say(line)
        if stage == scenario.get("end_at"):
            if scenario["how"] == "die":
                say(DEATHS.get(stage, "RuntimeError: it does not go on"))
                return 1
            while True:
                signal.pause()
    while "--headless" in words:
        signal.pause()
    sys.argv = ["small_service.py", words[words.index("--port") + 1], name, "256"]
    return small_service.main()


if __name__ == "__main__":
    sys.exit(main())
