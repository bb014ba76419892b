"""Which quantisation holds: the checkpoint's own, or the one that is made while loading. No torch."""

from __future__ import annotations

from pathlib import Path

from qanat.config.engine_config import EngineConfig
from qanat.config.known_flags import did_you_mean
from qanat.config.model_config import ModelConfig
from qanat.core.decision import Decision
from qanat.core.errors import CheckpointError, ConfigError

FLAG = "--quantization"

CHECKPOINT_FORMATS = ("ascend", "compressed-tensors", "fp8", "gptq")
"""Quantised checkpoints that are read."""

AT_LOAD = ("w8a8", "w4a8")
"""Schemes that are made while an unquantised checkpoint is loaded."""

SPELLINGS = {"gptq_marlin": "gptq", "compressed_tensors": "compressed-tensors", "msmodelslim": "ascend"}
"""Other names of the same formats."""

ASCEND_DESCRIPTIONS = "quant_model_description*.json"
"""Files with which Ascend's tools describe a quantised checkpoint."""

OTHER_MARKS = {"hf_quant_config.json": "modelopt"}
"""Files of formats that are not read, which must not pass for unquantised."""


def checkpoint_quantization(folder: Path, model: ModelConfig) -> str:
    """How the checkpoint says that it is quantised, "" if it does not."""
    if any(folder.glob(ASCEND_DESCRIPTIONS)):
        return "ascend"
    if model.quantization_config is not None:
        method = str(model.quantization_config.get("quant_method") or "unnamed method")
        return SPELLINGS.get(method, method)
    return next((method for mark, method in OTHER_MARKS.items() if (folder / mark).is_file()), "")


def settle_quantization(wishes: EngineConfig, found: str, dtype: str, said: list[Decision]) -> str:
    """The value of `ResolvedConfig.quantization`.

    Args:
        wishes: with the flag, or without.
        found: what the checkpoint says, see `checkpoint_quantization`.
        dtype: what unquantised weights are.
        said: decisions are added here.

    Raises:
        ConfigError: an unknown name, or one that does not go with the checkpoint.
        CheckpointError: the checkpoint is quantised in a way that is not read.
    """
    wanted = wishes.quantization
    asked = _known(wanted) if wanted else ""
    if wishes.load_format == "dummy":
        if asked in AT_LOAD:
            return asked
        if asked or found:
            said.append(Decision(FLAG, asked or found, dtype, "random weights come unquantised"))
        return ""
    if found and found not in CHECKPOINT_FORMATS:
        raise CheckpointError(
            f"The checkpoint is quantised ({found}), which this version does not read; it reads "
            f"{', '.join(CHECKPOINT_FORMATS)}. Serve the model's bfloat16 checkpoint, with {FLAG} w8a8 if it shall "
            "be smaller, or try the shape with --load-format dummy.",
            param="--model",
        )
    if found:
        if asked and asked != found:
            raise ConfigError(
                f"{FLAG} {wanted} does not go with this checkpoint, which is quantised already ({found}); "
                f"leave the flag out, or give the model's bfloat16 checkpoint.",
                param=FLAG,
            )
        said.append(Decision(FLAG, None, found, "the checkpoint's"))
        return found
    if asked in CHECKPOINT_FORMATS:
        return _without_format(asked, dtype, said)
    return asked


def _without_format(asked: str, dtype: str, said: list[Decision]) -> str:
    """The flag names a format, the checkpoint is not quantised: Ascend's command lines bring it with any model."""
    if asked != "ascend":
        raise ConfigError(
            f"{FLAG} {asked} is a format of checkpoints, and this checkpoint is not quantised; leave the flag out to "
            f"compute in {dtype}, or quantise while loading with {FLAG} w8a8.",
            param=FLAG,
        )
    said.append(Decision(FLAG, asked, dtype, "the checkpoint is not quantised"))
    return ""


def _known(wanted: str) -> str:
    known = (*CHECKPOINT_FORMATS, *AT_LOAD)
    name = SPELLINGS.get(wanted.lower(), wanted.lower())
    if name not in known:
        raise ConfigError(
            f"{FLAG} {wanted} is not known{did_you_mean(name, known) or '.'} It can be {', '.join(known)}.",
            param=FLAG,
        )
    return name
