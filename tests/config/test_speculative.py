"""`--speculative-config` is read, and what it cannot have is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from qanat.config.model_config import ModelConfig
from qanat.config.speculative import SpeculativeSettings, speculative_settings
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from tests.worker.tiny_model import CONFIGS


def read(
    value: dict[str, Any] | None, model: ModelConfig = CONFIGS["qwen3"], num_ranks: int = 1
) -> tuple[SpeculativeSettings, list[Decision]]:
    said: list[Decision] = []
    return speculative_settings(value, model, num_ranks, said), said


def test_without_the_flag_nothing_is_drafted() -> None:
    assert read(None) == (SpeculativeSettings(), [])


def test_ngram() -> None:
    settings, said = read({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 5})
    assert (settings.method, settings.num_tokens, settings.is_adaptive) == ("ngram", 4, True)
    assert (settings.prompt_lookup_min, settings.prompt_lookup_max) == (5, 5)
    assert not said
    assert speculative_settings(settings.as_flag(), CONFIGS["qwen3"], 1, []) == settings


def test_what_stands_in_it_without_effect_is_named() -> None:
    value = {"method": "ngram", "num_speculative_tokens": 1, "adaptive": False, "draft_sample_method": "x"}
    settings, said = read({**value, "disable_by_batch_siz": 4})
    assert not settings.is_adaptive
    assert [(one.field, one.got) for one in said] == [
        ("--speculative-config.disable_by_batch_siz", "ignored"),
        ("--speculative-config.draft_sample_method", "no effect"),
    ]


MTP_MODEL = dataclasses.replace(CONFIGS["qwen3_5"], num_mtp_layers=1)


@pytest.mark.parametrize("name", ["mtp", "qwen3_5_mtp"])
def test_mtp_by_both_names(name: str) -> None:
    settings, said = read({"method": name, "num_speculative_tokens": 3, "enforce_eager": True}, MTP_MODEL)
    assert (settings.method, settings.num_tokens, settings.is_eager, said) == ("mtp", 3, True, [])


def test_mtp_needs_a_layer_that_drafts() -> None:
    settings, [decision] = read({"method": "mtp", "num_speculative_tokens": 3})
    assert not settings.method
    assert decision.got == "no speculation" and "mtp_num_hidden_layers" in decision.why


@pytest.mark.parametrize("method", ["suffix", "draft_model", None])
def test_methods_that_are_not_there_are_said(method: str | None) -> None:
    settings, [decision] = read({"method": method, "num_speculative_tokens": 3})
    assert not settings.method and settings.as_flag() is None
    assert (decision.field, decision.got) == ("--speculative-config", "no speculation")
    assert str(method or "no method") in decision.why


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"method": "ngramm", "num_speculative_tokens": 1}, "did you mean ngram"),
        ({"method": "ngram"}, "needs num_speculative_tokens"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "0 is not between 1 and 16"),
        ({"method": "ngram", "num_speculative_tokens": 17}, "17 is not between 1 and 16"),
        ({"method": "ngram", "num_speculative_tokens": True}, "num_speculative_tokens"),
        ({"method": "ngram", "num_speculative_tokens": 1, "adaptive": "perhaps"}, "adaptive"),
        (
            {
                "method": "ngram",
                "num_speculative_tokens": 1,
                "prompt_lookup_min": 4,
                "prompt_lookup_max": 2,
            },
            "prompt_lookup_min 4 is above prompt_lookup_max 2",
        ),
    ],
)
def test_what_cannot_be_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(value)
