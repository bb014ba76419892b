"""What is settled about the reuse of prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qanat.config.engine_config import EngineConfig
from qanat.config.model_config import ModelConfig
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError
from qanat.core.private_folder import folder_problem

DIR_FLAG = "--prefix-cache-dir"


@dataclass(frozen=True)
class PrefixCacheSettings:
    """The prefix cache.

    Attributes:
        is_by_key: requests share prefixes only with those of the same API key.
        state_bytes: memory for checkpoints of recurrent states; None for a share of the cache.
        folder: keeps prefixes between starts; empty for none.
        folder_bytes: what its files may take; None for half of what is free with it empty.
    """

    is_by_key: bool = False
    state_bytes: int | None = None
    folder: str = ""
    folder_bytes: int | None = None


def prefix_cache_settings(
    wishes: EngineConfig, model: ModelConfig, said: list[Decision]
) -> PrefixCacheSettings | None:
    """The settings; None if prefixes are not reused.

    Args:
        wishes: what was asked for.
        model: the checkpoint's shape.
        said: gets the decisions.

    Raises:
        ConfigError: the folder for prefixes cannot be used, or others may enter it.
    """
    folder, folder_bytes = _folder(wishes, said)
    if wishes.enable_prefix_caching is False:
        return None
    state_bytes = wishes.prefix_cache_state_bytes
    if model.gdn is None and state_bytes is not None:
        why = "this model has no recurrent layers"
        said.append(Decision("--prefix-cache-state-bytes", state_bytes, "no effect", why))
        state_bytes = None
    return PrefixCacheSettings(wishes.prefix_cache_scope == "key", state_bytes, folder, folder_bytes)


def _folder(wishes: EngineConfig, said: list[Decision]) -> tuple[str, int | None]:
    """Where prefixes are kept between starts, empty for nowhere, and what they may take there."""
    wanted, size_bytes = wishes.prefix_cache_dir, wishes.prefix_cache_dir_bytes
    if wanted is not None and wishes.enable_prefix_caching is False:
        said.append(Decision(DIR_FLAG, wanted, "no effect", "--no-enable-prefix-caching"))
        wanted = None
    if wanted is None:
        if size_bytes is not None:
            said.append(Decision(f"{DIR_FLAG}-bytes", size_bytes, "no effect", f"there is no {DIR_FLAG}"))
        return "", None
    if not wanted:
        raise ConfigError(f"{DIR_FLAG} is empty; name a folder, or leave the flag out.", param=DIR_FLAG)
    path = Path(wanted).expanduser().absolute()
    if problem := folder_problem(path):
        raise ConfigError(
            f"{DIR_FLAG} {wanted}: {problem}. It holds what users have sent, so that it must be yours alone.",
            param=DIR_FLAG,
        )
    return str(path), size_bytes
