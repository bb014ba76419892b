"""Starts `qanat serve` on the demo model, asks it once over HTTP, stops it; exit code 0 if all of that worked.

ask_server.py QANAT     QANAT is the path of the console script
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request

START_TIMEOUT_S = 120
ANSWER_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Returns once /ready answers.

    Raises:
        RuntimeError: if the server ends first or takes too long.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {server.returncode}")
        try:
            urllib.request.urlopen(f"{url}/ready", timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"the server was not ready after {START_TIMEOUT_S} s")


def ask(url: str) -> str:
    """The text of one completion; its prompt and settings are those of the seed guides' functional check."""
    body = {"prompt": "The future of AI is", "max_tokens": 50, "temperature": 0}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as reply:
        return str(json.load(reply)["choices"][0]["text"])


def main(arguments: list[str]) -> int:
    """Runs the try."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([arguments[0], "serve", "--port", str(port), "--disable-uvicorn-access-log"])
    try:
        wait_until_ready(url, server)
        text = ask(url)
        print(f"answer: {text!r}")
        server.send_signal(signal.SIGTERM)
        server.wait(STOP_TIMEOUT_S)
    finally:
        server.kill()
    return 0 if text else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
