from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import main
from qanat.config.access_options import AccessOptions
from qanat.config.engine_config import OPTIONS, ServerOptions
from qanat.config.operation_options import OperationOptions
from qanat.config.options import options_of
from qanat.config.parallel_options import HostOptions, ReplicaOptions
from qanat.config.replicas import CORE_PROCESS_BYTES
from tests.config.tiny_folder import TWO_CORES, write_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model"))


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_the_sum_is_right_to_the_byte(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    memory = plan(capsys, model, "--available-memory", "2GiB", "--max-num-seqs", "7")["memory"]
    assert memory["available_bytes"] == 2 * 2**30
    assert memory["budget_bytes"] == 2**30
    assert memory["blocks_bytes"] == memory["num_blocks"] * memory["block_bytes"]
    assert memory["states_bytes"] == 8 * memory["state_bytes"]
    parts = ("weight_bytes", "workspace_bytes", "blocks_bytes", "states_bytes", "checkpoints_bytes")
    assert memory["total_bytes"] == sum(memory[part] for part in parts) <= memory["budget_bytes"]
    # One attention layer: keys and values, 64 tokens, 2 heads, 16 dimensions, 2 bytes.
    assert memory["block_bytes"] == 2 * 64 * 2 * 16 * 2


def test_every_setting_of_the_engine_is_there_with_a_reason(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = plan(capsys, model, "--gpu-memory-utilization", "0.9", "--dtype", "float32")
    rows = {row["flag"]: row for row in report["settings"]}
    assert all(row["reason"] for row in rows.values())
    assert (rows["--dtype"]["value"], rows["--dtype"]["reason"]) == ("float32", "as asked")
    assert rows["--memory-share"]["value"] == 0.9
    assert rows["--memory-share"]["reason"].startswith("--gpu-memory-utilization: ")
    assert rows["--max-num-queued-reqs"]["reason"] == "default"
    assert rows["--max-model-len"]["reason"] == "the model's window"
    groups = (ServerOptions, AccessOptions, OperationOptions, ReplicaOptions, HostOptions)
    server = {one.name for group in groups for one in options_of(group)} - {"data_parallel_size"}
    not_settled = {
        "revision",
        "download_dir",
        "trust_remote_code",
        "gpu_memory_utilization",
        "distributed_executor_backend",
        "pipeline_parallel_size",
        "enable_expert_parallel",
        "enforce_eager",
        "max_cudagraph_capture_size",
        "additional_config",
        "profiler_config",
        "guided_decoding_backend",
    }
    expected = {OPTIONS[name].flag for name in set(OPTIONS) - server - not_settled}
    assert set(rows) == expected | {"--served-model-name"}


def test_decisions_without_a_setting_are_listed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = plan(capsys, model, "-pp", "8", "--swap-space", "4")
    decisions = {decision["field"]: decision for decision in report["decisions"]}
    assert decisions["--pipeline-parallel-size"]["got"] == 1
    assert decisions["--swap-space"]["wanted"] == 4.0


def test_capacity_counts_requests_by_length(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = plan(capsys, model, "--kv-cache-memory-bytes", "4MiB", "--max-num-seqs", "16")
    capacity = {entry["num_tokens"]: entry["num_requests"] for entry in report["capacity"]}
    blocks = report["memory"]["num_blocks"] - 1
    assert capacity[1024] == min(16, blocks // 16)
    assert capacity[report["memory"]["max_model_len"]] == 1


def test_what_gives_way_is_said_with_the_reason(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    report = plan(capsys, model, "--kv-cache-memory-bytes", "1MiB")
    rows = {row["flag"]: row for row in report["settings"]}
    assert rows["--max-num-seqs"]["value"] < 64 and "recurrent states" in rows["--max-num-seqs"]["reason"]
    assert rows["--max-model-len"]["value"] < 262144 and "262144" in rows["--max-model-len"]["reason"]


def test_what_does_not_fit_exits_with_1_and_what_to_change(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trial case OPS-001, value set: both numbers and the flag, before anything is loaded."""
    assert main(["plan", model, "--kv-cache-memory-bytes", "1MiB", "--max-num-seqs", "256"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("qanat plan: error: ") and "--max-num-seqs" in error and "256" in error


def test_the_plan_for_people_shows_the_same_numbers(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [model, "--available-memory", "2GiB", "-pp", "2"]
    memory = plan(capsys, *arguments)["memory"]
    assert main(["plan", *arguments]) == 0
    text = capsys.readouterr().out
    for part in (
        "weight_bytes",
        "workspace_bytes",
        "blocks_bytes",
        "states_bytes",
        "total_bytes",
        "budget_bytes",
    ):
        assert f"{memory[part]:,} bytes" in text
    for title in (
        "Model ",
        "Machine ",
        "Kernels ",
        "Settings",
        "Named at the start",
        "Memory",
        "Requests that run",
    ):
        assert f"\n{title}" in f"\n{text}"
    assert "--pipeline-parallel-size 2 -> 1: not yet in this version" in text


def test_the_memory_of_each_rank_is_shown(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the heads and experts, and half the memory; the vocabulary is read by half and kept by half."""
    monkeypatch.setattr("qanat.config.prepare.read_machine", lambda: TWO_CORES)
    arguments = [model, "--available-memory", "2GiB", "--max-num-seqs", "7"]
    alone, shared = plan(capsys, *arguments), plan(capsys, *arguments, "-tp", "2")
    assert (alone["num_ranks"], shared["num_ranks"]) == (1, 2)
    assert shared["memory"]["available_bytes"] == (2 * 2**30 - 160 * 2**20) // 2
    for name in ("block_bytes", "state_bytes"):
        assert 2 * shared["memory"][name] == alone["memory"][name]
    assert shared["memory"]["weight_bytes"] < 0.6 * alone["memory"]["weight_bytes"]
    assert main(["plan", *arguments, "-tp", "2"]) == 0
    text = capsys.readouterr().out
    assert (
        "Memory of each of 2 ranks" in text
        and "1/2 of what 160 MiB per further process leave: as asked" in text
    )


def test_the_memory_of_each_replica_is_shown(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = dataclasses.replace(TWO_CORES, num_cores=4)
    monkeypatch.setattr("qanat.config.prepare.read_machine", lambda: machine)
    alone = plan(capsys, model, "--available-memory", "2GiB")
    shared = plan(capsys, model, "-dp", "2", "--available-memory", "2GiB")
    assert (alone["num_replicas"], shared["num_replicas"]) == (1, 2)
    assert shared["memory"]["available_bytes"] == 2**30 - CORE_PROCESS_BYTES
    assert shared["memory"]["weight_bytes"] == alone["memory"]["weight_bytes"]
    row = next(row for row in shared["settings"] if row["flag"] == "--data-parallel-size")
    assert (row["value"], row["reason"]) == (2, "as asked")
    assert main(["plan", model, "-dp", "2", "-tp", "2", "--available-memory", "8GiB"]) == 0
    text = capsys.readouterr().out
    assert "Memory of each of 2 ranks of each of 2 replicas" in text
    assert "1/2, less 160 MiB for the replica's process" in text


def test_a_size_that_does_not_divide_the_model_is_refused_with_those_that_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "qanat.config.prepare.read_machine", lambda: dataclasses.replace(TWO_CORES, num_cores=64)
    )
    model = str(write_model(tmp_path / "model"))
    assert main(["plan", model, "-tp", "3"]) == 2
    error = capsys.readouterr().err
    assert "3 does not divide 4 attention heads" in error and "Sizes that work: 1, 2, 4." in error
    report = plan(capsys, model, "-tp", "16")
    (row,) = [row for row in report["settings"] if row["flag"] == "--tensor-parallel-size"]
    assert row["value"] == 4 and "at most 4 ranks" in row["reason"]


def test_secrets_are_not_shown(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "s3cret-1")
    assert main(["plan", model, "--hf-token", "s3cret-2", "--api-key", "s3cret-3"]) == 0
    captured = capsys.readouterr()
    assert "s3cret" not in captured.out + captured.err
