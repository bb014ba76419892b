"""Every serve command of the guides reads and resolves, with only `vllm` and the model's path replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qanat.cli.command import read_invocation
from qanat.cli.serve import COMMAND
from qanat.config.env import read_environment
from qanat.config.model_config import ModelConfig
from qanat.config.prepare import Prepared, prepare
from qanat.core.errors import ConfigError
from qanat.executor.planning import plan_start
from tests.cli.seed_commands import SEEDS, SeedCommand, copied, found
from tests.config.tiny_folder import NO_VARIABLES, TWO_CORES, write_model
from tests.support.eagle3 import config_json

COMMANDS = copied()
PLAIN = [command for command in COMMANDS if not command.is_role]
ROLES = [command for command in COMMANDS if command.is_role]
SEED_VARIABLES = """
ASCEND_RT_VISIBLE_DEVICES=0,1 PYTORCH_NPU_ALLOC_CONF=expandable_segments:True HCCL_IF_IP=xxx HCCL_SOCKET_IFNAME=nic
GLOO_SOCKET_IFNAME=nic TP_SOCKET_IFNAME=nic HCCL_OP_EXPANSION_MODE=AIV HCCL_BUFFSIZE=1024 HCCL_ALGO=level0:fullmesh
HCCL_EXEC_TIMEOUT=204 HCCL_CONNECT_TIMEOUT=180 HCCL_DFS_CONFIG=task_exception:off HCCL_INTRA_PCIE_ENABLE=1
HCCL_INTRA_ROCE_ENABLE=0 OMP_NUM_THREADS=100 OMP_PROC_BIND=false TASK_QUEUE_ENABLE=1 LD_PRELOAD=/x.so VLLM_USE_V1=1
VLLM_VERSION=0.11.0 VLLM_USE_MODELSCOPE=True VLLM_ASCEND_ENABLE_DENSE_OPTIMIZE=1 VLLM_ASCEND_ENABLE_PREFETCH_MLP=1
VLLM_ASCEND_MLP_GATE_UP_PREFETCH_SIZE=4874368 VLLM_ASCEND_MLP_DOWN_PREFETCH_SIZE=4874368
VLLM_ASCEND_ENABLE_FLASHCOMM=1 VLLM_ASCEND_ENABLE_FLASHCOMM1=1 VLLM_ASCEND_ENABLE_FUSED_MC2=1
VLLM_ENGINE_READY_TIMEOUT_S=30000 VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=480 VLLM_TORCH_PROFILER_WITH_STACK=0
VLLM_RPC_TIMEOUT=3600000 VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=30000 PROMETHEUS_MULTIPROC_DIR=/dev/shm/vllm_metrics
DYNAMIC_EPLB=true PYTHONPATH=/vllm-workspace/vllm LD_LIBRARY_PATH=/usr/local/Ascend
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


def settle(command: SeedCommand, model: Path) -> Prepared:
    draft = model.with_name("draft")
    if command.draft and not draft.exists():
        draft.mkdir()
        raw = config_json(ModelConfig.from_folder(model), "speculators", 100)
        (draft / "config.json").write_text(json.dumps(raw))
    invocation = read_invocation(COMMAND, command.arguments(str(model), str(draft)), NO_VARIABLES)
    return prepare(invocation.wishes, NO_VARIABLES, TWO_CORES)


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the guides are not beside this checkout")
def test_the_copy_holds_every_command_of_the_guides() -> None:
    def facts(command: SeedCommand) -> tuple[object, ...]:
        words = [json.loads(word) if word.startswith("{") else word for word in command.words]
        return (command.name, *map(str, words))

    assert [facts(command) for command in found()] == [facts(command) for command in COMMANDS]


def test_there_are_nineteen_of_which_four_are_roles() -> None:
    assert len(COMMANDS) == 19
    assert len(ROLES) == 4
    assert sum(command.is_module for command in COMMANDS) == 8


@pytest.mark.parametrize("command", PLAIN, ids=lambda command: command.name)
def test_a_serve_command_resolves_and_fits(command: SeedCommand, model: Path) -> None:
    prepared = settle(command, model)
    words = command.words

    def given(*flags: str) -> str | None:
        return next((words[words.index(flag) + 1] for flag in flags if flag in words), None)

    limits = prepared.config.scheduler
    for value, got in (
        (given("--max-model-len", "--max_model_len"), limits.max_model_len),
        (given("--max-num-seqs"), limits.max_num_seqs),
        (given("--gpu-memory-utilization"), prepared.config.cache.memory_share),
        (given("--port"), prepared.wishes.port),
        (given("--seed"), prepared.config.seed),
    ):
        assert value is None or float(value) == got
    assert prepared.config.served_model_names == (given("--served-model-name"),)
    num_ranks = int(given("-tp", "--tensor-parallel-size") or 1)
    assert prepared.config.tensor_parallel_size == min(num_ranks, TWO_CORES.num_cores)
    decided = {decision.field for decision in prepared.decisions}
    assert (num_ranks > TWO_CORES.num_cores) == ("--tensor-parallel-size" in decided)
    for flag, field in (
        ("--enable-expert-parallel", "--enable-expert-parallel"),
        ("--block-size", "--block-size"),
        ("--quantization", "--quantization"),
        ("--gpu-memory-utilization", "--gpu-memory-utilization"),
        ("--speculative-config", "--speculative-config"),
        ("--speculative_config", "--speculative-config"),
        ("--additional-config", "--additional-config"),
        ("--trust-remote-code", "--trust-remote-code"),
        ("--mm-processor-cache-gb", "--mm-processor-cache-gb"),
        ("--allowed-local-media-path", "--allowed-local-media-path"),
    ):
        assert (flag in words) <= any(one.partition(".")[0] == field for one in decided), flag
    assert (prepared.config.prefix_cache is None) == ("--no-enable-prefix-caching" in words)
    graphs = prepared.config.graph_wishes
    assert graphs.is_eager == ("--enforce-eager" in words)
    assert prepared.config.scheduler.is_overlapped or "--async-scheduling" not in words
    assert ("--profiler-config" in words) == (prepared.config.profiler is not None)
    start = plan_start(prepared.config, available_bytes=TWO_CORES.available_bytes)
    assert start.memory.num_requests_of(limits.max_model_len) >= 1


@pytest.mark.parametrize("command", ROLES, ids=lambda command: command.name)
def test_half_of_a_disaggregated_service_is_refused_with_the_reason(
    command: SeedCommand, model: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(command, model)
    assert caught.value.message.startswith("--kv-transfer-config is refused: what services pass")
    assert caught.value.param == "--kv-transfer-config"


def test_the_misplaced_key_of_one_guide_is_named_with_its_home(model: Path) -> None:
    (command,) = [command for command in COMMANDS if command.name == "004-4"]
    decisions = {decision.field: decision for decision in settle(command, model).decisions}
    misplaced = decisions["--compilation-config.enable_cpu_binding"]
    assert "belongs in --additional-config" in misplaced.why


def test_every_variable_of_the_guides_is_named() -> None:
    variables = dict(entry.split("=", 1) for entry in SEED_VARIABLES.split())
    environment = read_environment(variables)
    named = {decision.field for decision in environment.decisions}
    assert named | set(environment.honoured) == set(variables)
    assert all(decision.got != "ignored" for decision in environment.decisions)
