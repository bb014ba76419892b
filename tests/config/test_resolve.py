from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qanat.config.engine_config import EngineConfig
from qanat.config.env import read_environment
from qanat.config.known_flags import known_flags
from qanat.config.model_config import ModelConfig
from qanat.config.resolve import resolve
from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.core.errors import CheckpointError, ConfigError
from tests.config.tiny_folder import NO_VARIABLES, TINY_CONFIG, TWO_CORES

MODEL = ModelConfig.from_dict({**TINY_CONFIG, "hidden_size": 1024})
SMALL_MODEL = ModelConfig.from_dict(TINY_CONFIG)


def settle(
    variables: dict[str, str] | None = None, checkpoint: str = "", **wishes: Any
) -> tuple[ResolvedConfig, dict[str, Decision]]:
    """The resolved configuration, and decisions by field."""
    environment = read_environment(variables) if variables else NO_VARIABLES
    config, decisions = resolve(
        EngineConfig(**wishes), MODEL, TWO_CORES, environment, model_path="/m", quantization=checkpoint
    )
    fields = [decision.field for decision in decisions]
    assert len(fields) == len(set(fields))
    return config, {decision.field: decision for decision in decisions}


def test_defaults_without_any_flag() -> None:
    config, decisions = settle()
    limits = config.scheduler
    assert (limits.max_model_len, limits.max_num_seqs, limits.max_num_batched_tokens) == (262144, 64, 512)
    assert config.open_limits == ("max_model_len", "max_num_seqs")
    assert (config.dtype, config.cache.kv_cache_dtype, config.cache.block_size) == (
        "bfloat16",
        "bfloat16",
        64,
    )
    assert (config.cache.memory_share, config.num_threads) == (0.5, 2)
    assert config.served_model_names == ("qanat-demo",)
    derived = ["--dtype", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--memory-share"]
    assert set(decisions) == {*derived, "--num-threads", "--async-scheduling"}
    assert all(decision.wanted is None and decision.why for decision in decisions.values())


def test_what_was_wished_holds_in_silence() -> None:
    wishes: dict[str, Any] = {
        "model": "m",
        "dtype": "float32",
        "max_model_len": 4096,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 128,
        "scheduling_policy": "priority",
        "block_size": 16,
        "kv_cache_dtype": "float16",
        "memory_share": 0.25,
        "kv_cache_memory_bytes": 2**30,
        "num_threads": 1,
        "seed": 7,
        "enable_nan_check": False,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "max_decode_stall_s": 0.1,
        "max_num_queued_reqs": 5,
        "max_num_queued_tokens": 50,
        "max_queue_wait_s": 30.0,
        "init_timeout_s": 5,
        "step_timeout_s": 6,
        "served_model_name": ("a", "b"),
        "reasoning_parser": "qwen3",
        "load_format": "dummy",
        "packed_weights_cache": False,
    }
    config, decisions = settle(**wishes)
    assert decisions == {}
    assert config.open_limits == ()
    limits, cache = config.scheduler, config.cache
    assert dataclasses.astuple(limits) == (128, 8, 4096, "priority", 5, 50, 30.0, 0.1, 0, True, False)
    assert dataclasses.astuple(cache) == (16, "float16", "", 0.25, 2**30, None, 0, None)
    assert (config.seed, config.num_threads, config.is_nan_check_enabled) == (7, 1, False)
    assert (config.init_timeout_s, config.step_timeout_s) == (5.0, 6.0)
    assert config.served_model_names == ("a", "b")


def test_random_weights_are_not_kept_packed_and_the_plan_says_why() -> None:
    config, decisions = settle(load_format="dummy")
    assert config.packed_cache is None
    assert "random weights" in decisions["--packed-weights-cache"].why


@pytest.mark.parametrize(("short", "full"), [("half", "float16"), ("float", "float32")])
def test_short_names_of_types(short: str, full: str) -> None:
    config, _ = settle(dtype=short, kv_cache_dtype=short)
    assert (config.dtype, config.cache.kv_cache_dtype) == (full, full)


@pytest.mark.parametrize(
    ("wishes", "field", "got", "part"),
    [
        ({"block_size": 128}, "--block-size", 64, "64 tokens are the largest block"),
        (
            {"gpu_memory_utilization": 0.9},
            "--gpu-memory-utilization",
            "--memory-share 0.9",
            "available memory",
        ),
        ({"tensor_parallel_size": 8}, "--tensor-parallel-size", 2, "may use 2 cores"),
        ({"distributed_executor_backend": "mp"}, "--distributed-executor-backend", "uni", "no other process"),
        ({"data_parallel_size": 8}, "--data-parallel-size", 2, "may use 2 cores"),
        ({"pipeline_parallel_size": 2}, "--pipeline-parallel-size", 1, "not yet in this version"),
        ({"enable_expert_parallel": True}, "--enable-expert-parallel", False, "a part of each expert"),
        ({"trust_remote_code": True}, "--trust-remote-code", "no effect", "no code from a checkpoint"),
        ({"quantization": "ascend"}, "--quantization", "bfloat16", "not quantised"),
        (
            {"compilation_config": {"level": 3}},
            "--compilation-config.level",
            "no effect",
            "nothing else to set",
        ),
        (
            {"speculative_config": {"method": "mtp"}},
            "--speculative-config",
            "no speculation",
            "brings no multi-token",
        ),
        ({"additional_config": {"enable_mlapo": True}}, "--additional-config", "no effect", "Ascend"),
        (
            {"additional_config": {"enable_cpu_binding": True}},
            "--additional-config.enable_cpu_binding",
            "--cpu-binding",
            "this flag here",
        ),
        ({"cpu_binding": True}, "--cpu-binding", "processors 0-1", "no other is left for the server"),
        (
            {"profiler_config": {"profiler": "torch"}},
            "--profiler-config",
            "no profiler",
            "torch_profiler_dir",
        ),
        ({"reasoning_parser": "deepseek_r1"}, "--reasoning-parser", "qwen3", "own vocabulary"),
        ({"num_threads": 16}, "--num-threads", 2, "may use 2 cores"),
        ({"max_num_seqs": 600}, "--max-num-batched-tokens", 600, "a token for each running request"),
        ({"max_num_batched_tokens": 16}, "--max-num-seqs", 16, "room for no more tokens"),
        (
            {"max_num_batched_tokens": 9999, "max_num_seqs": 2, "max_model_len": 100},
            "--max-num-batched-tokens",
            200,
            "2 requests of 100 tokens cannot use more",
        ),
    ],
)
def test_every_override_is_a_decision(wishes: dict[str, Any], field: str, got: object, part: str) -> None:
    _, decisions = settle(**wishes)
    assert decisions[field].got == got
    assert part in decisions[field].why


def test_a_share_said_twice() -> None:
    config, decisions = settle(memory_share=0.3, gpu_memory_utilization=0.9)
    assert config.cache.memory_share == 0.3
    assert decisions["--gpu-memory-utilization"].got == "ignored"


def test_reserved_cores_stay_free() -> None:
    config, decisions = settle({"VLLM_CPU_NUM_OF_RESERVED_CPU": "1"})
    assert config.num_threads == 1
    assert "keeps 1 of 2 cores free" in decisions["--num-threads"].why


@pytest.mark.parametrize(
    ("wishes", "parts"),
    [
        ({"max_model_len": 300000}, ["--max-model-len 300000", "262144", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"]),
        (
            {"max_num_seqs": 64, "max_num_batched_tokens": 32},
            ["--max-num-batched-tokens 32", "--max-num-seqs 64"],
        ),
        ({"block_size": 48}, ["--block-size 48", "32, 16"]),
        ({"load_format": "pt"}, ["--load-format pt is not offered", "safetensors", "dummy"]),
        ({"load_format": "zip"}, ["--load-format zip is unknown"]),
        (
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 100, "max_model_len": 200},
            ["--no-enable-chunked-prefill", "(100)", "(200)"],
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(wishes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(**wishes)
    assert all(part in caught.value.message for part in parts)
    assert (caught.value.param or "").startswith("--")


def test_a_window_may_be_exceeded_on_purpose() -> None:
    config, decisions = settle({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, max_model_len=300000)
    assert config.scheduler.max_model_len == 300000
    assert "the model was made for 262144 tokens" in decisions["--max-model-len"].why


def test_without_chunks_a_step_holds_the_longest_prompt() -> None:
    config, decisions = settle(enable_chunked_prefill=False, max_num_batched_tokens=2000)
    assert (config.scheduler.max_model_len, config.scheduler.max_num_batched_tokens) == (2000, 2000)
    config, decisions = settle(enable_chunked_prefill=False, max_model_len=5000)
    assert config.scheduler.max_num_batched_tokens == 5000
    assert "hold the longest prompt" in decisions["--max-num-batched-tokens"].why


def test_an_unknown_quantised_checkpoint_is_refused_and_its_shape_runs_as_random_weights() -> None:
    with pytest.raises(CheckpointError, match=r"quantised \(awq\).*--load-format dummy"):
        settle(checkpoint="awq")
    config, decisions = settle(checkpoint="awq", load_format="dummy")
    assert config.dtype == "bfloat16" and decisions["--quantization"].wanted == "awq"
    assert config.quantization == ""


@pytest.mark.parametrize(
    ("checkpoint", "wanted", "got"),
    [
        ("ascend", None, "ascend"),
        ("ascend", "ascend", "ascend"),
        ("ascend", "Ascend", "ascend"),
        ("gptq", "gptq_marlin", "gptq"),
        ("compressed-tensors", "compressed_tensors", "compressed-tensors"),
        ("", "w4a8", "w4a8"),
        ("", None, ""),
    ],
)
def test_quantization_is_recognised_and_may_be_named(checkpoint: str, wanted: str | None, got: str) -> None:
    config, decisions = settle(checkpoint=checkpoint, quantization=wanted)
    assert config.quantization == got
    assert ("--quantization" in decisions) == bool(checkpoint)


@pytest.mark.parametrize(
    ("checkpoint", "wanted", "message"),
    [
        ("ascend", "fp8", r"--quantization fp8 .* quantised already \(ascend\)"),
        ("gptq", "w8a8", r"--quantization w8a8 .* quantised already \(gptq\)"),
        ("", "gptq", "--quantization gptq is a format of checkpoints"),
        ("", "ascned", r"ascned is not known; did you mean ascend\?"),
        ("ascend", "zzz", r"zzz is not known\. It can be ascend, "),
    ],
)
def test_a_quantization_that_does_not_go_with_the_checkpoint_is_refused(
    checkpoint: str, wanted: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settle(checkpoint=checkpoint, quantization=wanted)


def test_random_weights_can_be_quantised_while_they_are_made() -> None:
    config, decisions = settle(quantization="w8a8", load_format="dummy")
    assert config.quantization == "w8a8" and "--quantization" not in decisions


def test_unknown_json_keys_are_named_with_the_nearest_or_their_home() -> None:
    _, decisions = settle(
        compilation_config={
            "enable_cpu_binding": "True",
            "cudagraph_mod": "NONE",
            "pass_config": {"enable_spp": 1},
        },
        additional_config={"ascend_compilation_config": {"enable_npugraph": True}, "enable_flashcomm": True},
        speculative_config={"num_speculative_token": 3},
    )
    why = {field: decision.why for field, decision in decisions.items() if "." in field}
    assert "belongs in --additional-config" in why["--compilation-config.enable_cpu_binding"]
    assert "did you mean cudagraph_mode?" in why["--compilation-config.cudagraph_mod"]
    assert "did you mean enable_sp?" in why["--compilation-config.pass_config.enable_spp"]
    assert (
        "did you mean enable_npugraph_ex?"
        in why["--additional-config.ascend_compilation_config.enable_npugraph"]
    )
    assert "did you mean enable_flashcomm1?" in why["--additional-config.enable_flashcomm"]
    assert "did you mean num_speculative_tokens?" in why["--speculative-config.num_speculative_token"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv-transfer-config", {"kv_connector": "MooncakeConnectorV1"}),
        ("ssl-ciphers", "HIGH"),
        ("middleware", ("auth.Check",)),
        ("runner", "pooling"),
        ("task", "embed"),
    ],
)
def test_what_cannot_be_left_aside_is_refused_with_the_reason(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(foreign_flags={name: value})
    assert caught.value.message.startswith(f"--{name} is refused: ")
    assert len(caught.value.message) > len(name) + 40


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("runner", "generate"),
        ("convert", "none"),
    ],
)
def test_values_that_ask_for_what_happens_anyway_pass(name: str, value: object) -> None:
    _, decisions = settle(foreign_flags={name: value})
    assert f"--{name}" not in decisions


def test_every_flag_of_vllm_has_an_outcome() -> None:
    for name, known in known_flags().items():
        if not known.is_refused:
            decision = known.decide("x")
            assert decision is not None
            assert decision.field == f"--{name}" and decision.got in ("no effect", "not yet in this version")
            assert len(decision.why) > 15


def test_notes_of_the_wishes_come_first() -> None:
    note = Decision("--max-model", None, "--max-model-len", "an abbreviation")
    config, decisions = resolve(EngineConfig(notes=(note,)), MODEL, TWO_CORES, NO_VARIABLES, model_path="/m")
    assert decisions[0] == note


@pytest.mark.parametrize(
    ("wishes", "model", "num_threads"),
    [({}, MODEL, 2), ({}, SMALL_MODEL, 1), ({"num_threads": 2}, SMALL_MODEL, 2)],
)
def test_small_models_run_on_one_thread_unless_more_are_wished(
    wishes: dict[str, Any], model: ModelConfig, num_threads: int
) -> None:
    config, decisions = resolve(EngineConfig(**wishes), model, TWO_CORES, NO_VARIABLES, model_path="/m")
    assert config.num_threads == num_threads
    if num_threads == 1:
        assert "so small" in {decision.field: decision for decision in decisions}["--num-threads"].why


@pytest.mark.parametrize("text", ["-3", "-1"])
def test_a_negative_number_of_reserved_cores_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="VLLM_CPU_NUM_OF_RESERVED_CPU: .* the least is 0"):
        settle({"VLLM_CPU_NUM_OF_RESERVED_CPU": text})


@pytest.mark.parametrize(("text", "num_threads"), [("0", 2), ("1", 1), ("2", 1), ("99", 1)])
def test_reserved_cores_leave_at_least_one(text: str, num_threads: int) -> None:
    assert settle({"VLLM_CPU_NUM_OF_RESERVED_CPU": text})[0].num_threads == num_threads
