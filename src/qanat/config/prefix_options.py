"""Wishes about the reuse of what was computed for earlier prompts."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.config.options import option
from qanat.config.values import Kind


@dataclass(frozen=True, kw_only=True)
class PrefixOptions:
    """Prefix cache."""

    enable_prefix_caching: bool | None = option(
        Kind.SWITCH,
        None,
        "Compute what a prompt has in common with earlier ones, from 64 tokens on, only once. Default: on.",
    )
    prefix_cache_scope: str = option(
        Kind.TEXT,
        "global",
        "Who shares prefixes: everybody, or only requests with the same API key, so that nobody can learn from the "
        "time to the first token what others have asked.",
        choices=("global", "key"),
    )
    prefix_cache_state_bytes: int | None = option(
        Kind.BYTES,
        None,
        "Memory for checkpoints of recurrent states, e.g. 2GiB; models without such layers have none. Default: a "
        "quarter of what is left for the cache, as far as a request of --max-model-len still fits.",
        minimum=1,
    )
    prefix_cache_dir: str | None = option(
        Kind.TEXT,
        None,
        "Folder, which only you may enter, that keeps cached prefixes on disk between starts: written while nothing is "
        "to be computed and at the end, read before the next start serves. Default: none.",
    )
    prefix_cache_dir_bytes: int | None = option(
        Kind.BYTES,
        None,
        "What all files there may take, e.g. 20GiB; what is worth least goes first. Default: half of what is free on "
        "that disk with the folder empty.",
        minimum=1,
    )
