"""An engine in a process of its own that answers one line with one line, so that its model is loaded once."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.workloads import DECODE, Workload

ROOT = Path(__file__).resolve().parents[2]


class LineWorker:
    """Starts the process and waits for its first line, which is an object with its facts.

    Args:
        command: of the process; it reads workloads as JSON and answers each with {"ttft_s": ..., "tpot_s": ...}.
        variables: of its environment, beside those of this process.
        log: file for its standard error.

    Attributes:
        facts: what the process said of itself.
    """

    def __init__(self, command: Sequence[str | Path], variables: Mapping[str, str], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.facts: dict[str, Any] = self._read()

    def tokens_per_s(self, workload: Workload) -> float:
        """The rate that the workload asks for."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(workload)) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if workload.phase == DECODE:
            return workload.batch_size / float(answer["tpot_s"])
        return workload.batch_size * workload.input_len / float(answer["ttft_s"])

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _read(self) -> dict[str, Any]:
        """The next line that is an object; engines print other things too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the process ended with {self._process.wait()}; see {self._log.name}")
