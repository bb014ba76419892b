from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from qanat.cli import terminal
from qanat.cli.bench_actions.common import ENGINE_GROUPS
from qanat.cli.bench_actions.latency import LatencyFlags
from qanat.cli.bench_actions.throughput import REFUSED, ThroughputFlags
from qanat.cli.main import main
from qanat.config.env import ISA_VARIABLE
from qanat.config.options import options_of
from qanat.kernels.native import limits
from qanat.kernels.native.module import instruction_sets, is_built
from tests.config.tiny_folder import write_model

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "vllm_ascend" / "bench_flags.json"
VLLM_LATENCY_KEYS = {"avg_latency", "latencies", "percentiles"}
VLLM_THROUGHPUT_KEYS = {
    "elapsed_time",
    "num_requests",
    "total_num_tokens",
    "requests_per_second",
    "tokens_per_second",
}
SMALL = ("--max-model-len", "128", "--num-gpu-blocks-override", "12", "--num-threads", "1")


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference is not beside this checkout")
@pytest.mark.parametrize(
    ("action", "options", "refused"),
    [("latency", LatencyFlags, set()), ("throughput", ThroughputFlags, set(REFUSED))],
)
def test_every_flag_of_vllms_command_is_taken_or_refused_with_a_reason(
    action: str, options: type, refused: set[str]
) -> None:
    flags = json.loads(REFERENCE.read_text())["subcommands"][action]
    ours = {
        name for base in options.__mro__[:-1] for one in options_of(base) for name in (one.flag, *one.aliases)
    }
    engine = {one.flag for group in ENGINE_GROUPS for one in options_of(group)}
    assert set(flags) - ours - engine == {f"--{name}" for name in refused}
    assert not refused & {name.removeprefix("--") for name in ours}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_model(tmp_path_factory.mktemp("model")) / "config.json")


@pytest.fixture(autouse=True)
def _limits_are_measured_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEFAULT_READ_BYTES", 2**20)
    monkeypatch.setattr(limits, "RATE_TIME_S", 0.001)


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["bench", *arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_latency_has_vllms_keys_and_ours(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--input-len", "6", "--output-len", "4", "--batch-size", "2")
    result = bench(capsys, "latency", model, *flags, *SMALL, "--num-iters", "3", "--num-iters-warmup", "1")
    assert result.keys() >= VLLM_LATENCY_KEYS
    assert len(result["latencies"]) == 3
    assert list(result["percentiles"]) == ["10", "25", "50", "75", "90", "99"]
    assert result["avg_latency"] == pytest.approx(sum(result["latencies"]) / 3)
    assert 0 < result["median_ttft_s"] < max(result["latencies"])
    assert result["load_format"] == "dummy"
    if is_built():
        limit = result["decode_limit"]
        assert limit["share"] == pytest.approx(
            result["decode_tokens_per_s"] / limit["tokens_per_s"], rel=1e-6
        )
        assert result["limits"]["read_bytes_per_s"] > 0


def test_throughput_has_vllms_keys_and_ours(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    flags = ("--random-input-len", "5", "--random-output-len", "3", "--num-prompts", "4", "--n", "2")
    arguments = ("throughput", model, *flags, *SMALL, "--no-limits", "--output-json", str(path))
    assert main(["bench", *arguments, "--backend", "vllm", "--async-engine"]) == 0
    output = capsys.readouterr()
    result = json.loads(path.read_text())
    assert result.keys() >= VLLM_THROUGHPUT_KEYS
    assert (result["num_requests"], result["total_input_tokens"], result["total_output_tokens"]) == (
        4,
        20,
        24,
    )
    assert result["total_num_tokens"] == 44
    assert result["tokens_per_second"] == pytest.approx(44 / result["elapsed_time"])
    assert "limits" not in result
    assert output.out.startswith("Throughput: ")
    assert "--async-engine true -> no effect" in output.err
    assert "--load-format auto -> dummy" in output.err


def test_kernels_covers_every_op_of_the_model(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--rows", "2", "70", "--weights", "bf16", "int8", "--context-len", "8")
    small = ("--case-time-s", "0.001", "--working-set", "1MiB", "--num-threads", "1")
    report = bench(capsys, "kernels", "--model", model, *flags, *small)
    results = report["results"]
    assert {result["op"] for result in results} == {
        "embedding",
        "linear",
        "linears",
        "logits",
        "share_rows",
        "shared_add_rms_norm",
        "shared_gated_rms_norm",
        "shared_swiglu",
        "swiglu",
        "rms_norm",
        "add_rms_norm",
        "gated_rms_norm",
        "rotary_rows",
        "qk_norm_rotary_store",
        "paged_attention",
        "gated_delta_net",
        "moe_route",
        "moe_experts",
        "moe_combine",
        "moe_mixture",
    }
    assert {result["rows"] for result in results} == {2, 70}
    assert {result["kind"] for result in results} == {"bf16", "int8"}
    by = {(result["provider"], result["instruction_set"]) for result in results}
    native = {("native", instruction_sets()[-1])} if is_built() else set()
    assert by == {("reference", ""), *native}
    assert all(result["median_s"] > 0 for result in results)
    if is_built():
        assert all(result["share_of_limit"] > 0 for result in results if result["op"] == "linear")
        assert report["limits"]["macs_per_s"]


def test_kernels_on_several_instruction_sets_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    if not is_built():
        pytest.skip("the native kernels are not built")
    small = ("--case-time-s", "0.001", "--working-set", "1MiB", "--num-threads", "1")
    flags = ("--model", "demo", "--rows", "1", "--filter", "q_proj", "--isa", "all")
    assert main(["bench", "kernels", *flags, *small]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == "demo"
    assert [line.split()[7] for line in text.splitlines() if "q_proj" in line] == instruction_sets()
    assert "Machine: reads" in text


def test_kernels_run_on_the_instruction_set_that_the_environment_asks_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_built():
        pytest.skip("the native kernels are not built")
    small = ("--case-time-s", "0.001", "--working-set", "1MiB", "--num-threads", "1")
    flags = ("--model", "demo", "--rows", "1", "--filter", "q_proj", "--provider", "native")
    lowest = instruction_sets()[0]
    monkeypatch.setenv(ISA_VARIABLE, lowest)
    report = bench(capsys, "kernels", *flags, *small)
    assert {result["instruction_set"] for result in report["results"]} == {lowest}
    monkeypatch.setenv(ISA_VARIABLE, "mmx")
    assert main(["bench", "kernels", *flags, *small]) == 2
    assert "QANAT_ISA=mmx" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing", "there is no action nothing"),
        ("latncy", "Did you mean latency?"),
        ("latency --batch-sise 2", "--batch-size"),
        ("latency --batch-size 0", "the least is 1"),
        ("latency --output-json ./nowhere/result.json", "there is no such folder"),
        ("latency --use-beam-search", "no beam search"),
        ("latency --no-limits --profile --input-len 4 --output-len 2", "--profile needs a folder"),
        ("throughput --backend hf", "benchmarks/peers"),
        ("throughput --dataset-name sonnet", "not one of random"),
        ("throughput --dataset-name custom --num-prompts 1", "--dataset-path FILE"),
        ("throughput --lora-path x", "--lora-path is not offered: adapters are not measured"),
        ("throughput --hf_split=test", "--hf-split is not offered: data sets of a hub"),
        ("latency --model ./nowhere", "no such folder"),
        ("kernels --weights fp8", "--weights fp8: choose of bf16"),
        ("kernels --provider cuda", "--provider cuda: choose of native"),
        ("kernels --rows 0", "--rows 0: at least 1"),
        ("kernels --rows many", "--rows"),
        ("kernels --model demo --filter nothing", "no op has that"),
        ("kernels --model ./nowhere", "no such folder"),
        ("kernels demo", "--model demo"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments.split()]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("action", ["kernels", "latency", "throughput"])
def test_the_base_install_says_what_is_missing(
    action: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "ENGINE_MODULES", ("torch_that_is_not_there",))
    assert main(["bench", action]) == 2
    assert "pip install 'qanat[engine]'" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["kernels", "latency", "throughput"])
def test_help_is_complete(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", action, "--help"]) == 0
    text = capsys.readouterr().out
    assert f"Examples:\n  qanat bench {action}" in text
    assert "--json" in text


@pytest.mark.parametrize("action", ["latency", "throughput"])
def test_limits_that_are_not_measured_are_said(
    action: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks: one process's limit is no bound for them."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    few = {"latency": ("--num-iters", "1", "--num-iters-warmup", "0"), "throughput": ("--num-prompts", "1")}
    lengths = ("--input-len", "2", "--output-len", "2", "--tensor-parallel-size", "2")
    assert main(["bench", action, model, *lengths, *SMALL, *few[action], "--json"]) == 0
    captured = capsys.readouterr()
    assert "limits" not in json.loads(captured.out)
    assert captured.err.count("not measured") == 1
