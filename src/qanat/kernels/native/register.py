"""Makes the native kernels a provider of every op that they cover."""

from __future__ import annotations

from qanat.kernels import ops as _declared  # noqa: F401  (the ops exist once it is imported)
from qanat.kernels.native import experts, products, rowwise, sequence, shared_rows
from qanat.kernels.native.module import is_built
from qanat.kernels.registry import all_ops

NATIVE = "native"
"""Name of the provider."""


def register() -> None:
    """Registers once; to be called when this module is imported."""
    for source in (products, experts, rowwise, sequence, shared_rows):
        for op in all_ops():
            function = getattr(source, op.name, None)
            if function is not None:
                op.register(NATIVE, function, row_invariant=True, is_usable=is_built)


register()
