"""Sampling values for fields that a request leaves out: what the checkpoint's authors recommend, or what was set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from qanat.config.known_flags import did_you_mean
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError, InvalidRequestError
from qanat.core.sampling_params import SamplingParams

FILE_NAME = "generation_config.json"
FLAG = "--override-generation-config"
FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)
"""Fields that are taken; a bound on the length is not, as it would cut answers that nobody asked to cut."""
LENGTH_KEYS = ("max_new_tokens", "max_length", "min_new_tokens", "min_length")
OTHER_KEYS = (
    "bos_token_id eos_token_id pad_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id "
    "num_beams num_beam_groups num_return_sequences length_penalty diversity_penalty early_stopping constraints "
    "typical_p epsilon_cutoff eta_cutoff top_h no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty bad_words_ids force_words_ids suppress_tokens begin_suppress_tokens sequence_bias "
    "stop_strings guidance_scale penalty_alpha dola_layers renormalize_logits remove_invalid_values "
    "exponential_decay_length_penalty watermarking_config token_healing max_time use_cache cache_implementation "
    "cache_config prompt_lookup_num_tokens num_assistant_tokens assistant_confidence_threshold low_memory "
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate transformers_version"
).split()
"""Keys of generation_config.json that transformers knows and that are no sampling default here."""


def read_sampling_defaults(
    source: str, override: Mapping[str, Any] | None, model_path: str
) -> tuple[dict[str, Any], list[Decision]]:
    """Defaults of sampling fields, with a decision for each that differs from the neutral value.

    Without sampling (`do_sample` false) and without a temperature beside it, the temperature is 0.

    Args:
        source: --generation-config: "auto" for the checkpoint's file, "vllm" for none, or another folder.
        override: --override-generation-config: goes before the file.
        model_path: the checkpoint's folder.

    Raises:
        ConfigError: a folder without the file, a file that is not JSON, a value that is not allowed, or an unknown
            key of the flag.
    """
    from_file = _file_values(source, model_path)
    from_flag = {name: value for name, value in (override or {}).items() if value is not None}
    decisions = _check_flag(from_flag)
    merged = {**from_file, **from_flag}
    is_greedy = any(
        values.get("do_sample") is False and values.get("temperature") is None
        for values in (from_flag, merged)
    )
    if is_greedy:
        merged["temperature"] = 0.0
    defaults = {name: merged[name] for name in FIELDS if merged.get(name) is not None}
    for name, value in defaults.items():
        if value != getattr(SamplingParams(), name):
            key = "do_sample" if is_greedy and name == "temperature" else name
            origin = FLAG if key in from_flag else f"{FILE_NAME} (--generation-config vllm: none)"
            reason = f"{origin}: do_sample is false" if key == "do_sample" else origin
            decisions.append(Decision(name, None, value, f"default of requests, from {reason}"))
    return defaults, decisions


def _file_values(source: str, model_path: str) -> dict[str, Any]:
    """What the file says, checked; nothing where there is none or none is wanted."""
    if source == "vllm":
        return {}
    path = Path(model_path if source == "auto" else source) / FILE_NAME
    if not path.is_file():
        if source != "auto":
            raise ConfigError(f"There is no {path}.", param="--generation-config")
        return {}
    values = _read(path)
    _check(values, FILE_NAME)
    return values


def _check_flag(values: Mapping[str, Any]) -> list[Decision]:
    """Refuses keys and values that cannot be meant; a decision for each key that is known and not taken."""
    _check(values, FLAG)
    if not isinstance(values.get("do_sample", True), bool):
        raise ConfigError(f"{FLAG}: do_sample must be true or false.", param=FLAG)
    decisions = []
    for name, value in values.items():
        if name in LENGTH_KEYS:
            why = "it would bound answers that nobody asked to bound; requests set max_tokens and min_tokens"
            decisions.append(Decision(f"{FLAG}.{name}", value, "ignored", why))
        elif name in OTHER_KEYS:
            decisions.append(Decision(f"{FLAG}.{name}", value, "ignored", "no default of sampling here"))
        elif name not in FIELDS and name != "do_sample":
            known = (*FIELDS, "do_sample", *LENGTH_KEYS, *OTHER_KEYS)
            raise ConfigError(f"{FLAG}: unknown key {name!r}{did_you_mean(name, known)}", param=FLAG)
    return decisions


def _read(path: Path) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", param="--generation-config") from None
    return values if isinstance(values, dict) else {}


def _check(values: Mapping[str, Any], origin: str) -> None:
    fields = {name: values[name] for name in FIELDS if values.get(name) is not None}
    try:
        msgspec.convert(fields, SamplingParams)
    except (msgspec.ValidationError, InvalidRequestError) as error:
        raise ConfigError(f"A sampling default of {origin} is not allowed: {error}.", param=origin) from None
