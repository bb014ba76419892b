"""What one rank of a tensor-parallel group holds of a model, as a shape. No torch here: plans are made from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from qanat.config.model_config import GatedDeltaNetConfig, ModelConfig
from qanat.core.errors import ConfigError

FLAG = "--tensor-parallel-size"


def rank_model(model: ModelConfig, size: int) -> ModelConfig:
    """The shape of one rank's share: its heads and inner widths; what every rank has in full stays.

    Key-value heads (and key heads of the delta net) of which there are fewer than ranks are held by several ranks,
    one each. The vocabulary's size stays: scores are joined again.

    Args:
        model: the whole model.
        size: ranks; must be among `possible_sizes`.
    """
    if size == 1:
        return model
    moe = model.moe
    if moe is not None:
        moe = dataclasses.replace(
            moe,
            expert_intermediate_size=moe.expert_intermediate_size // size,
            shared_expert_intermediate_size=moe.shared_expert_intermediate_size // size,
        )
    return dataclasses.replace(
        model,
        num_attention_heads=model.num_attention_heads // size,
        num_key_value_heads=max(1, model.num_key_value_heads // size),
        intermediate_size=model.intermediate_size // size,
        moe=moe,
        gdn=rank_gdn(model.gdn, size) if model.gdn is not None else None,
    )


def rank_gdn(config: GatedDeltaNetConfig, size: int) -> GatedDeltaNetConfig:
    """The heads of the delta net that one of so many ranks holds."""
    return dataclasses.replace(
        config,
        num_key_heads=max(1, config.num_key_heads // size),
        num_value_heads=config.num_value_heads // size,
    )


def misfits(model: ModelConfig, size: int) -> list[str]:
    """Why a model cannot be shared by so many ranks, one reason for each count that does not divide."""
    reasons = [f"{size} does not divide {count} {what}" for count, what in _divided(model) if count % size]
    reasons += [
        f"{count} {what} can neither be divided nor repeated for {size} ranks"
        for count, what in _repeated(model)
        if count % size and size % count
    ]
    return reasons


def possible_sizes(model: ModelConfig) -> list[int]:
    """Group sizes that the model can be shared by, ascending; 1 is always among them."""
    return [size for size in range(1, model.num_attention_heads + 1) if not misfits(model, size)]


def check_size(model: ModelConfig, size: int) -> None:
    """Refuses a size that does not fit the model.

    Raises:
        ConfigError: with the reasons and the sizes that would work.
    """
    reasons = misfits(model, size)
    if reasons:
        sizes = ", ".join(map(str, possible_sizes(model)))
        raise ConfigError(
            f"{FLAG} {size} does not fit this model: {'; '.join(reasons)}. Sizes that work: {sizes}.",
            param=FLAG,
        )


def _divided(model: ModelConfig) -> Iterator[tuple[int, str]]:
    """Counts that every rank takes an equal part of."""
    yield model.num_attention_heads, "attention heads"
    yield model.vocab_size, "rows of the vocabulary"
    if model.intermediate_size:
        yield model.intermediate_size, "rows of the feed-forward part"
    if model.gdn is not None:
        yield model.gdn.num_value_heads, "value heads of the delta net"
    if model.moe is not None:
        yield model.moe.expert_intermediate_size, "rows of an expert"
        if model.moe.shared_expert_intermediate_size:
            yield model.moe.shared_expert_intermediate_size, "rows of the shared expert"


def _repeated(model: ModelConfig) -> Iterator[tuple[int, str]]:
    """Heads that several ranks may hold where there are more ranks than heads."""
    yield model.num_key_value_heads, "key-value heads"
    if model.gdn is not None:
        yield model.gdn.num_key_heads, "key heads of the delta net"
