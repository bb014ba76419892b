"""Values that Python printed, and the command they came from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.diagnose.python_values import ValueFault, read_python_value
from qanat.deploy.diagnose.settings import Settings, findings_of

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_what_python_prints_reads_back(value: object) -> None:
    text = repr(value)
    assert read_python_value(text + " behind") == (value, len(text))


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_fault(text: str) -> None:
    try:
        read_python_value(text)
    except ValueFault:
        pass


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<CUDAGraphMode.FULL_DECODE_ONLY: (2, 0)>", "FULL_DECODE_ONLY"),
        ("KVTransferConfig(kv_connector='A', kv_port=1)", {"kv_connector": "A", "kv_port": 1}),
        ('{"level":null,"on":true}', {"level": None, "on": True}),
        ("[LoRAModulePath(name='a', base=None)]", [{"name": "a", "base": None}]),
        ("{'a', 'b'}", ["a", "b"]),
        ("torch.bfloat16", "torch.bfloat16"),
        ("1e-05", 1e-05),
        ("(1,)", [1]),
    ],
)
def test_other_ways_to_print(text: str, value: object) -> None:
    assert read_python_value(text)[0] == value


def test_nesting_has_a_bound() -> None:
    with pytest.raises(ValueFault, match="deep"):
        read_python_value("[" * 1000)


def test_a_command_is_made_of_arguments() -> None:
    settings = Settings()
    settings.take_variable("+ export HCCL_BUFFSIZE=1024", "a.log", 2)
    settings.take_variable("HF_TOKEN=secret", "a.log", 3)
    settings.take_variable("SOMETHING_ELSE=1", "a.log", 4)
    line = (
        "non-default args: {'model_tag': 'Qwen/Qwen3-32B', 'model': 'Qwen/Qwen3-32B', 'api_key': ['s'], "
        "'enable_prefix_caching': False, 'trust_remote_code': True, 'served_model_name': ['a b'], 'port': 8000, "
        "'compilation_config': {'cudagraph_mode': 'FULL_DECODE_ONLY', 'cudagraph_capture_sizes': [4, 8]}}"
    )
    assert settings.take_arguments(line, "a.log", 7)
    text, places = settings.command()
    assert text.splitlines() == [
        "export HCCL_BUFFSIZE=1024",
        "vllm serve \\",
        "Qwen/Qwen3-32B \\",
        "--no-enable-prefix-caching \\",
        "--trust-remote-code \\",
        "--served-model-name 'a b' \\",
        "--port 8000 \\",
        """--compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [4, 8]}'""",
    ]
    assert places[1] == ("a.log", 2) and {places[number] for number in range(2, 9)} == {("a.log", 7)}
    assert not settings.take_arguments("non-default args: {'a': ", "a.log", 9)
    assert not settings.take_arguments("non-default args: none", "a.log", 9)


def test_a_finding_that_a_variable_would_void_is_not_counted() -> None:
    sizes = list(range(8, 160, 8))
    settings = Settings()
    settings.arguments_at = ("a.log", 1)
    settings.arguments = {
        "model": "/weights/Qwen3-32B-w8a8",
        "tensor_parallel_size": 8,
        "compilation_config": {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": sizes},
    }
    (unsure,) = [one for one in findings_of([settings], "0.18.0") if one.finding.rule_id == "GRA008"]
    assert unsure.unless == "HCCL_OP_EXPANSION_MODE" and not unsure.is_fault
    settings.take_variable("export HCCL_OP_EXPANSION_MODE=HOST", "a.log", 2)
    (sure,) = [one for one in findings_of([settings], "0.18.0") if one.finding.rule_id == "GRA008"]
    assert not sure.unless and sure.is_fault


def test_servers_are_checked_about_each_other() -> None:
    def server(name: str, role: str, k: int) -> Settings:
        stated = Settings(arguments_at=(name, 3))
        stated.arguments = {
            "model": "/weights/Qwen3.5-397B-A17B-w8a8",
            "tensor_parallel_size": 8,
            "speculative_config": {"method": "qwen3_5_mtp", "num_speculative_tokens": k},
            "kv_transfer_config": {
                "kv_connector": "MooncakeLayerwiseConnector",
                "kv_role": role,
                "kv_port": 36010,
                "engine_id": "1",
            },
        }
        return stated

    alike = findings_of([server("p.log", "kv_producer", 3), server("d.log", "kv_consumer", 3)], "v0.23.0-a3")
    apart = findings_of([server("p.log", "kv_producer", 1), server("d.log", "kv_consumer", 3)], "v0.23.0-a3")
    rules = {one.finding.rule_id for one in apart} - {one.finding.rule_id for one in alike}
    assert rules, [one.finding.message for one in apart]
    assert {(one.file, one.line) for one in apart} <= {("p.log", 3), ("d.log", 3)}
