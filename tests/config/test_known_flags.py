"""The tables against the reference they were made from, where that lies beside the checkout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from qanat.config.command_line import Grammar
from qanat.config.engine_config import OPTIONS
from qanat.config.env import known_variables
from qanat.config.known_flags import known_flags, read_data
from qanat.config.values import Kind

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "vllm_ascend"
needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the reference is not beside this checkout"
)
KINDS = {"bool": Kind.SWITCH, "int": Kind.COUNT, "float": Kind.NUMBER}


def test_no_flag_is_both_a_field_and_foreign() -> None:
    assert not {option.flag.removeprefix("--") for option in OPTIONS.values()} & set(known_flags())


def test_aliases_lead_to_flags() -> None:
    grammar = Grammar.of(OPTIONS.values())
    assert set(grammar.aliases.values()) <= set(grammar.kinds)
    for alias in (
        "-tp",
        "-dp",
        "-pp",
        "-ep",
        "-q",
        "-dpl",
        "-dpr",
        "-dpa",
        "-dpp",
        "-asc",
        "-n",
        "-r",
        "-cc",
        "-sc",
    ):
        assert alias in grammar.aliases


@needs_reference
def test_every_flag_of_vllm_is_known_with_its_kind_and_aliases() -> None:
    grammar = Grammar.of(OPTIONS.values())
    flags = json.loads((REFERENCE / "flags_by_vllm_version.json").read_text())["flags"]
    for flag, facts in flags.items():
        name = flag.removeprefix("--")
        if name == "config":
            continue
        assert name in grammar.kinds
        for alias in facts["aliases"]:
            assert grammar.aliases[alias] == name
        kind = KINDS.get(str(facts["type"]).removesuffix(" | None"))
        if kind is not None and name != "max-model-len" and name != "kv-cache-memory-bytes":
            assert grammar.kinds[name] is kind, name


@needs_reference
def test_every_variable_is_known() -> None:
    table = known_variables()
    known = set(table.said) | table.honoured
    names = set(json.loads((REFERENCE / "vllm_env_vars.json").read_text())["vars"])
    ascend = json.loads((REFERENCE / "env_vars.json").read_text())
    for section in ("vllm_ascend_envs_py", "read_elsewhere_aliases", "runtime_and_third_party"):
        for entry in ascend[section]:
            names |= {re.split(r"[=(]", part)[0].strip() for part in entry.split(" / ")}
    assert names <= known


@needs_reference
def test_every_json_key_is_known() -> None:
    keys = read_data("json_keys.json")["keys"]
    classes = json.loads((REFERENCE / "vllm_config_fields.json").read_text())["classes"]
    assert set(classes["CompilationConfig"]) == set(keys["compilation-config"])
    assert set(classes["SpeculativeConfig"]) == set(keys["speculative-config"])
    assert set(classes["ProfilerConfig"]) == set(keys["profiler-config"])
    assert set(classes["KVTransferConfig"]) == set(keys["kv-transfer-config"])
    additional = json.loads((REFERENCE / "additional_config.json").read_text())
    assert set(additional["keys"]) == set(keys["additional-config"])


def test_names_about_strict_calls_are_told_that_they_are_enforced() -> None:
    reasons = [known_flags()["tool-strict-level"].why]
    reasons.append(known_variables().said["VLLM_ENFORCE_STRICT_TOOL_CALLING"][1])
    assert all("always enforced" in reason for reason in reasons)
