"""Whether weights that another Qanat made of a checkpoint are those that this one would make."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_MAKERS = ("kernels/quantised.py", "layers", "models", "quant")
"""Modules that decide what becomes of a tensor on its way to the kernels."""


@functools.cache
def recipe_digest(package: Path = _PACKAGE) -> str:
    """Of the programs that read, cut, round and convert weights, as they lie on the disk.

    Any change counts, since no probe would try every format, name and shape: to pack once too often costs one start,
    and weights by rules that are no longer would stay unnoticed. How kernels pack is not in it, see
    `qanat.kernels.providers.packed_layout`.

    Args:
        package: the folder of `qanat`.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for maker in _MAKERS:
        place = package / maker
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for part in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
                digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()
