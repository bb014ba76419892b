"""What the bits of the prefix cache depend on besides the tokens, and the folder of what was made with the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qanat.config.resolved import ResolvedConfig
from qanat.config.weight_digest import weight_digest
from qanat.core.prefix_entry import PrefixIdentity
from qanat.core.prefix_folder import PrefixFolder

FORMAT = "3: with rows to draft from beside states or blocks, and counts of the entries of a draft layer"
"""Of what is kept; what was written in another one is left out."""


def prefix_weights(config: ResolvedConfig) -> str:
    """Tells the weights of a model.

    Raises:
        OSError: a weight file cannot be read.
    """
    if config.load_format == "dummy":
        return f"random weights of seed {config.seed or 0}"
    return weight_digest(Path(config.model_path))


def prefix_folder(config: ResolvedConfig, op_table: Sequence[str], rank: int) -> PrefixFolder | None:
    """Where a rank keeps prefixes between starts; None if that is not wished.

    Args:
        config: the resolved configuration.
        op_table: providers of the kernels: torch's references round otherwise than the native ones.
        rank: of the tensor-parallel group.

    Raises:
        OSError: a weight file cannot be read.
    """
    from qanat import __version__

    if config.prefix_cache is None or not config.prefix_cache.folder:
        return None
    parts = {
        "format": FORMAT,
        "model": prefix_weights(config),
        "weight format": config.quantization,
        "type": config.dtype,
        "cache type": config.cache.kv_cache_dtype,
        "block size": str(config.cache.block_size),
        "shape": repr(config.model),
        "kernels": "; ".join(" ".join(line.split()) for line in op_table),
        "number of ranks": str(config.tensor_parallel_size),
        "drafter": config.speculative.method,
        "version of Qanat": __version__,
    }
    place = Path(config.prefix_cache.folder)
    return PrefixFolder(place, PrefixIdentity(parts), __version__, rank, config.tensor_parallel_size)
