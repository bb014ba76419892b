"""`qanat bench serve` against `qanat serve` with the demo model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import ServerProcess, run_command

pytestmark = pytest.mark.slow
CAN_BE_BUSY = (0, 3)


def measured(server: ServerProcess, folder: Path, *flags: str) -> dict[str, Any]:
    done = run_command(
        [
            *(
                "bench",
                "serve",
                "--port",
                str(server.port),
                "--num-prompts",
                "12",
                "--random-output-len",
                "8",
            ),
            *("--ignore-eos", "--save-result", "--save-detailed", "--result-dir", str(folder)),
            *("--result-filename", "result.json", *flags),
        ]
    )
    assert done.returncode in CAN_BE_BUSY, done.stderr
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def codes(result: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in result["qanat"]["findings"]}


def test_lengths_are_exact_and_a_second_run_with_the_same_prompts_is_found_out(tmp_path: Path) -> None:
    with ServerProcess(["--max-model-len", "1024"]) as server:
        first = measured(server, tmp_path, "--random-input", "130")
        assert first["input_lens"] == [130] * 12 and first["output_lens"] == [8] * 12
        assert first["qanat"]["server"]["ttft"]["count"] == 12
        assert first["qanat"]["prompts"]["cached_share"] in (0, None) and "prefix_cache" not in codes(first)
        chat = measured(server, tmp_path, "--random-input", "40", "--backend", "openai-chat")
        assert chat["output_lens"] == [8] * 12
        assert chat["qanat"]["prompts"]["num_added_to_each"] is not None
        again = measured(server, tmp_path, "--random-input", "130")
        other = measured(server, tmp_path, "--random-input", "130", "--run-id", "b")
        assert "prefix_cache" not in codes(other)
        if first["qanat"]["prompts"]["cached_share"] is not None:
            assert "prefix_cache" in codes(again) and again["qanat"]["prompts"]["cached_share"] > 0.4
