from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qanat.config.engine_config import OPTIONS, EngineConfig
from qanat.config.env import flag_variables, known_variables, read_environment
from qanat.config.honour import STAND_INS, honour
from qanat.config.huge_pages import allocator_decision
from qanat.config.known_flags import HIDDEN, known_flags
from qanat.core.errors import ConfigError

PACKAGE = Path(__file__).parents[2] / "src" / "qanat"


def test_every_flag_has_its_variable() -> None:
    names = flag_variables()
    assert {option.variable for option in OPTIONS.values()} <= names
    assert "QANAT_SWAP_SPACE" in names and "QANAT_CONFIG" in names
    assert len(names) == len(OPTIONS) + len(known_flags()) + 1


def test_variables_without_effect_become_decisions_with_their_values() -> None:
    environment = read_environment(
        {"HCCL_BUFFSIZE": "1024", "VLLM_USE_V1": "1", "HOME": "/root", "TERM": "xterm"}
    )
    assert [decision.field for decision in environment.decisions] == ["HCCL_BUFFSIZE", "VLLM_USE_V1"]
    first, second = environment.decisions
    assert (first.wanted, first.got) == ("1024", "no effect") and "Ascend" in first.why
    assert second.why.endswith("dropped upstream after 0.11.0")


def test_values_of_secrets_are_hidden() -> None:
    environment = read_environment({"S3_SECRET_ACCESS_KEY": "s3cret", "VLLM_API_KEY": "s3cret"})
    wishes, said = honour(EngineConfig(), environment)
    assert wishes.api_key == ("s3cret",)
    decisions = [*environment.decisions, *said]
    assert len(decisions) == 2
    assert all("s3cret" not in str(decision) and decision.wanted == HIDDEN for decision in decisions)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("QANAT_MAX_MODEL_LENGTH", "QANAT_MAX_MODEL_LEN"), ("VLLM_USE_MODELSCOP", "VLLM_USE_MODELSCOPE")],
)
def test_unknown_variables_of_ours_and_vllms_name_the_nearest(name: str, nearest: str) -> None:
    (decision,) = read_environment({name: "1"}).decisions
    assert decision.field == name and decision.got == "ignored"
    assert decision.why.endswith(f"did you mean {nearest}?")


def test_service_links_of_kubernetes_are_no_settings() -> None:
    """Trial case OPS-004: a service named like the product injects NAME_PORT=tcp://..."""
    links = {
        "QANAT_PORT": "tcp://10.0.0.1:80",
        "QANAT_SERVICE_HOST": "10.0.0.1",
        "QANAT_SERVICE_PORT": "80",
        "QANAT_SERVICE_PORT_HTTP": "80",
        "QANAT_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "QANAT_PORT_8000_TCP_ADDR": "10.0.0.1",
    }
    environment = read_environment({**links, "QANAT_HOST": "0.0.0.0"})
    assert environment.flags == {"QANAT_HOST": "0.0.0.0"}
    (decision,) = environment.decisions
    assert all(name in decision.field for name in links) and "Kubernetes" in decision.why


def test_a_port_that_is_meant_is_read() -> None:
    assert read_environment({"QANAT_PORT": "8010"}).flags == {"QANAT_PORT": "8010"}


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("VLLM_CPU_KVCACHE_SPACE", "4", "kv_cache_memory_bytes", 4 * 2**30),
        ("OMP_NUM_THREADS", "3", "num_threads", 3),
        ("OMP_NUM_THREADS", "4,2", "num_threads", 4),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "30000", "init_timeout_s", 30000.0),
        ("VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "30", "step_timeout_s", 30.0),
        ("VLLM_LOGGING_LEVEL", "DEBUG", "log_level", "debug"),
        ("VLLM_LOGGING_LEVEL", "WARN", "log_level", "warning"),
    ],
)
def test_variables_of_vllm_that_stand_for_a_flag(name: str, text: str, field: str, value: object) -> None:
    wishes, (decision,) = honour(EngineConfig(), read_environment({name: text}))
    assert getattr(wishes, field) == value
    assert decision.field == name and str(decision.got).startswith(OPTIONS[field].flag)
    given = EngineConfig(**{field: value})
    unchanged, (decision,) = honour(given, read_environment({name: text}))
    assert unchanged == given and decision.got == "ignored"


def test_the_value_of_a_misspelled_secret_is_not_printed() -> None:
    (decision,) = read_environment({"QANAT_CLUSTR_KEY": "s3cret s3cret s3cret"}).decisions
    assert "s3cret" not in str(decision) and "QANAT_CLUSTER_KEY" in str(decision)


def test_zero_gibibytes_leave_the_size_to_the_engine() -> None:
    wishes, (decision,) = honour(EngineConfig(), read_environment({"VLLM_CPU_KVCACHE_SPACE": "0"}))
    assert wishes.kv_cache_memory_bytes is None and decision.got == "ignored"


@pytest.mark.parametrize(
    ("name", "text"),
    [("VLLM_CPU_KVCACHE_SPACE", "much"), ("OMP_NUM_THREADS", "0"), ("VLLM_LOGGING_LEVEL", "loud")],
)
def test_a_bad_value_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        honour(EngineConfig(), read_environment({name: text}))
    assert caught.value.message.startswith(f"{name}: ")


def test_every_honoured_variable_is_acted_upon() -> None:
    """The table and the code that honours must agree."""
    source = "".join(path.read_text() for path in (PACKAGE / "config").glob("*.py"))
    assert {stand_in.variable for stand_in in STAND_INS} <= known_variables().honoured
    for name in known_variables().honoured:
        assert f'"{name}"' in source


def test_the_environment_is_read_in_one_file_only() -> None:
    reads = subprocess.run(
        ["grep", "-rlE", r"os\.environ|getenv", "--include=*.py", str(PACKAGE)],
        capture_output=True,
        text=True,
    )
    assert reads.stdout.split() == [str(PACKAGE / "config" / "env.py")]


def test_an_allocator_that_is_preloaded_is_named_with_what_became_of_it(tmp_path: Path) -> None:
    preload = "/usr/lib/libjemalloc.so.2"
    assert allocator_decision("/usr/lib/libsomething.so") is None
    missing = allocator_decision(preload, tmp_path)
    assert missing is not None and "did not load" in missing.why
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/maps").write_text(f"7f00-7f01 r-xp 0 08:01 5 {preload}\n")
    loaded = allocator_decision(preload, tmp_path)
    assert loaded is not None and loaded.got == "jemalloc"
    assert [each.field for each in read_environment({"LD_PRELOAD": preload}).decisions] == ["LD_PRELOAD"]
