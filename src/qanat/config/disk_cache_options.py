"""Wishes about what is kept on disk between starts."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class DiskCacheOptions:
    """Cache on disk."""

    packed_weights_cache: bool = option(
        Kind.SWITCH,
        True,
        "Keep the weights as the native kernels read them, and map them at the next start instead of reading the "
        "checkpoint.",
    )
    cache_dir: str | None = option(
        Kind.TEXT,
        None,
        "Folder for it; packed weights lie in its folder packed, which only you may read. Default: qanat in "
        "XDG_CACHE_HOME, or in ~/.cache.",
    )
    cache_max_bytes: int | None = option(
        Kind.BYTES,
        None,
        "What all packed weights there may take, e.g. 40GiB; the longest unused go first. Default: half of what is "
        "free on that disk with the cache empty.",
        minimum=1,
    )
