"""Flags of vLLM's benchmarks that are not offered: what is said to those who give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qanat.config.command_line import TYPOGRAPHIC_DASHES, is_flag
from qanat.core.errors import ConfigError

NO_MEDIA = "Qanat's command measures text"
NO_HUB = "data sets of a hub are not fetched; --dataset-name custom reads any file of prompts"
NOT_BUILT_IN = "this data set is not built in; --dataset-name custom reads any file of prompts"


def refuse_flags(arguments: Sequence[str], refused: Mapping[str, str]) -> None:
    """Refuses flags of vLLM's command that are not offered.

    Args:
        arguments: the command line.
        refused: why, by name without the dashes in front.

    Raises:
        ConfigError: saying why, and what to use instead.
    """
    for argument in arguments:
        name = argument.partition("=")[0].lstrip("-" + TYPOGRAPHIC_DASHES).replace("_", "-")
        if is_flag(argument) and name in refused:
            raise ConfigError(f"--{name} is not offered: {refused[name]}.", param=f"--{name}")
