"""Where packed weights are kept between starts, and how much they may take there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qanat.config.disk_cache_options import DiskCacheOptions
from qanat.config.engine_config import EngineConfig
from qanat.config.env import own_cache_folder
from qanat.core.cache_folder import CacheFolder
from qanat.core.decision import Decision
from qanat.core.private_folder import folder_problem

FLAG = "--packed-weights-cache"
SUBFOLDER = "packed"


@dataclass(frozen=True)
class PackedCacheSettings:
    """The cache of packed weights.

    Attributes:
        folder: that holds them.
        max_bytes: that they may take; None for half of what is free with the cache empty.
    """

    folder: str
    max_bytes: int | None = None

    def open(self) -> CacheFolder:
        """The folder; nothing is made or written yet."""
        return CacheFolder(Path(self.folder), self.max_bytes)


def packed_cache_settings(wishes: EngineConfig, said: list[Decision]) -> PackedCacheSettings | None:
    """The settings; None if the cache is switched off or cannot be used, which is said.

    Args:
        wishes: what was asked for.
        said: gets the decisions.
    """
    if not wishes.packed_weights_cache:
        return None
    if wishes.load_format == "dummy":
        why = "--load-format dummy: random weights are made anew at every start"
        said.append(Decision(FLAG, True, False, why))
        return None
    settings = disk_cache_settings(wishes)
    if problem := folder_problem(Path(settings.folder)):
        why = f"{problem}; weights are read from the checkpoint and packed at every start"
        said.append(Decision(FLAG, True, False, why))
        return None
    return settings


def cache_root(wanted: str | None) -> Path:
    """The folder that was asked for, else the user's own."""
    if wanted is not None:
        return Path(wanted).expanduser().absolute()
    return own_cache_folder()


def disk_cache_settings(options: DiskCacheOptions) -> PackedCacheSettings:
    """Folder and bound, whether or not the cache is used."""
    return PackedCacheSettings(str(cache_root(options.cache_dir) / SUBFOLDER), options.cache_max_bytes)
