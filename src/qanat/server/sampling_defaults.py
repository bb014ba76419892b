"""Sampling values for fields that a request leaves out: what the checkpoint's authors recommend, or what was set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from qanat.core.decision import Decision
from qanat.core.errors import ConfigError, InvalidRequestError
from qanat.core.sampling_params import SamplingParams

FILE_NAME = "generation_config.json"
FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields that are taken; a bound on the length is not, as it would cut answers that nobody asked to cut."""


def read_sampling_defaults(
    source: str, override: Mapping[str, Any] | None, model_path: str
) -> tuple[dict[str, Any], list[Decision]]:
    """Defaults of sampling fields, with a decision for each that differs from the neutral value.

    Args:
        source: --generation-config: "auto" for the checkpoint's file, "vllm" for none, or another folder.
        override: --override-generation-config: goes before the file.
        model_path: the checkpoint's folder.

    Raises:
        ConfigError: a folder without the file, a file that is not JSON, or a value that is not allowed.
    """
    values: dict[str, Any] = {}
    origin = "--override-generation-config"
    if source != "vllm":
        folder = model_path if source == "auto" else source
        path = Path(folder) / FILE_NAME
        if path.is_file():
            values, origin = _read(path), FILE_NAME
        elif source != "auto":
            raise ConfigError(f"There is no {path}.", param="--generation-config")
    from_file = {name: values[name] for name in FIELDS if values.get(name) is not None}
    from_flag = {
        name: value for name, value in (override or {}).items() if name in FIELDS and value is not None
    }
    defaults = {**from_file, **from_flag}
    _check(defaults, origin)
    decisions = [
        Decision(name, None, value, f"default of requests, from {_origin(name, from_flag)}")
        for name, value in defaults.items()
        if value != getattr(SamplingParams(), name)
    ]
    return defaults, decisions


def _origin(name: str, from_flag: Mapping[str, Any]) -> str:
    return (
        "--override-generation-config"
        if name in from_flag
        else f"{FILE_NAME} (--generation-config vllm: none)"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.", param="--generation-config") from None
    return values if isinstance(values, dict) else {}


def _check(defaults: dict[str, Any], origin: str) -> None:
    try:
        msgspec.convert(defaults, SamplingParams)
    except (msgspec.ValidationError, InvalidRequestError) as error:
        raise ConfigError(f"A sampling default of {origin} is not allowed: {error}.", param=origin) from None
