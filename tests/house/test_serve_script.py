"""The first command of the README: scripts/serve brings the demo model up, and what it then shows works as it is."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.checkout import ROOT
from tests.support.server_process import free_port

pytestmark = pytest.mark.slow

READY_TIMEOUT_S = 180
ANSWER_TIMEOUT_S = 60


def environment() -> dict[str, str]:
    """This process's, with the tests' own Python environment as the one to use."""
    return {**os.environ, "QANAT_VENV": sys.prefix}


def wait_for(text: str, log: Path, server: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        if text in log.read_text():
            return log.read_text()
        time.sleep(0.2)
    raise AssertionError(f"{text!r} did not appear:\n{log.read_text()}")


def run(*command: str) -> str:
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=ANSWER_TIMEOUT_S,
    )
    return result.stdout


def test_shown_examples_get_the_right_answer(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [ROOT / "scripts" / "serve", "--port", str(free_port())],
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        shown = wait_for("Press Ctrl-C", log, server)
        (curl,) = re.findall(r"^  (curl .*\\\n.*)$", shown, re.MULTILINE)
        answer = json.loads(run("bash", "-c", f"{curl} --silent --show-error"))
        assert "42" in answer["choices"][0]["message"]["content"]
        (snippet,) = re.findall(r"^(  from openai .*?)\n\n", shown, re.MULTILINE | re.DOTALL)
        assert "42" in run(sys.executable, "-c", re.sub(r"^  ", "", snippet, flags=re.MULTILINE))
        server.send_signal(signal.SIGINT)  # what Ctrl-C sends
        assert server.wait(ANSWER_TIMEOUT_S) == 0
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)


def test_offline_example_of_the_readme_gets_the_right_answer() -> None:
    text = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(from qanat import .*?)```", text, re.DOTALL)
    assert "42" in run(sys.executable, "-c", example)
