"""What --structured-outputs-config and the older flag come to."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from qanat.config.structured import BACKENDS, StructuredSettings, structured_settings
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError


def read(value: dict[str, Any] | None, old: str | None = None) -> tuple[StructuredSettings, list[Decision]]:
    said: list[Decision] = []
    return structured_settings(value, old, said), said


def test_nothing_said_is_the_default() -> None:
    assert read(None) == (StructuredSettings(), [])
    assert read({"backend": "auto"}) == (StructuredSettings(), [])
    assert StructuredSettings().backend == BACKENDS[0]


def test_limits_and_switches_are_read() -> None:
    settings, said = read(
        {
            "compile_timeout_s": 2,
            "max_form_bytes": "64KiB",
            "max_grammar_bytes": "128KiB",
            "max_compile_memory_bytes": "64MiB",
            "disable_any_whitespace": True,
            "disable_additional_properties": "true",
            "enable_in_reasoning": False,
        }
    )
    assert settings == StructuredSettings("guidance", True, True, False, 2.0, 65536, 131072, 64 * 2**20)
    assert said == []
    again, _ = read(settings.as_flag())
    assert again == settings


@pytest.mark.parametrize("name", ["outlines", "lm-format-enforcer"])
def test_a_backend_of_vllm_that_is_not_offered_becomes_a_decision(name: str) -> None:
    for settings, said in (read({"backend": name}), read(None, name)):
        assert settings.backend == BACKENDS[0]
        (decision,) = said
        assert (decision.wanted, decision.got) == (name, BACKENDS[0])


@pytest.mark.parametrize(
    ("value", "old", "message"),
    [
        ({"backend": "guidence"}, None, "guidance"),
        ({"backend": "guidance"}, "outlines", "contradicts"),
        ({"compile_timeout_s": 0}, None, "too small"),
        ({"max_form_bytes": "many"}, None, "max_form_bytes"),
        ({"disable_any_whitespace": "perhaps"}, None, "disable_any_whitespace"),
    ],
)
def test_values_that_cannot_be_used_are_refused(value: dict[str, Any], old: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(value, old)


def test_keys_without_effect_and_unknown_keys_are_named() -> None:
    _, said = read({"disable_fallback": True, "reasoning_parser": "qwen3", "backand": "guidance"})
    assert [decision.field.rpartition(".")[2] for decision in said] == [
        "backand",
        "disable_fallback",
        "reasoning_parser",
    ]


@pytest.mark.skipif(find_spec("xgrammar") is not None, reason="xgrammar is installed")
def test_a_backend_whose_library_is_missing_is_refused_with_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"qanat\[xgrammar\]"):
        read({"backend": "xgrammar"})


@pytest.mark.skipif(find_spec("xgrammar") is None, reason="needs xgrammar")
def test_the_older_flag_names_the_backend() -> None:
    assert read(None, "xgrammar")[0].backend == "xgrammar"
