"""Scores that are not numbers, over a real server: an error and a count, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.e2e.test_processes import gauge, holds_within
from tests.server.test_run import arguments, model  # noqa: F401
from tests.server.test_stopping import WAIT_S, error_of
from tests.support.server_process import ServerProcess
from tests.support.startup_script import with_startup_script

SCRIPT = '''
if is_core:
    from qanat.models.decoder import CausalLM

    trigger = folder / "trigger"
    compute_logits = CausalLM.compute_logits

    def spoilt(self, hidden):
        """From the third time on after there is a trigger."""
        global num_times
        logits = compute_logits(self, hidden)
        num_times = num_times + 1 if trigger.exists() else 0
        return logits * float("nan") if num_times >= 3 else logits

    num_times = 0

    CausalLM.compute_logits = spoilt
'''


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_eng_036_a_request_that_is_spoilt_ends_counts_and_leaves_nothing(
    model: str,  # noqa: F811
    tmp_path: Path,
    temperature: float,
) -> None:
    trigger = tmp_path / "trigger"
    environment = with_startup_script(tmp_path, SCRIPT)
    body = {"prompt": "abc", "max_tokens": 3000, "ignore_eos": True, "temperature": temperature, "seed": 1}
    with ServerProcess(arguments(model, "--enforce-eager"), environment=environment) as server:
        url = f"{server.base_url}/v1/completions"
        short = httpx.post(url, json={**body, "max_tokens": 9}, timeout=WAIT_S).json()["choices"]
        assert errors(server) == 0
        trigger.touch()
        with httpx.stream("POST", url, json={**body, "stream": True}, timeout=WAIT_S) as stream:
            lines = [line for line in stream.iter_lines() if line]
            assert len(lines) <= 3 and error_of(lines[-1])["code"] == "numeric_error"
        assert httpx.post(url, json=body, timeout=WAIT_S).status_code == 500
        assert errors(server) == 2
        trigger.unlink()
        assert httpx.post(url, json={**body, "max_tokens": 9}, timeout=WAIT_S).json()["choices"] == short
        assert holds_within(WAIT_S, lambda: gauge(server, "vllm:kv_cache_usage_perc") == 0)


def errors(server: ServerProcess) -> float:
    """Requests that ended with an error, as /metrics counts them."""
    lines = server.get("/metrics").text.splitlines()
    (line,) = [
        line
        for line in lines
        if line.startswith("vllm:request_success_total{") and 'finished_reason="error"' in line
    ]
    return float(line.rpartition(" ")[2])
