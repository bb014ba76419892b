"""Which provider every op gets in this process."""

from __future__ import annotations

from qanat.kernels.native import register as _native  # noqa: F401  (its import makes it a provider)
from qanat.kernels.native.module import configure
from qanat.kernels.reference.uncut import max_uncut_inputs
from qanat.kernels.registry import REFERENCE, all_ops, select_providers


def choose_providers(num_threads: int, instruction_set: str = "") -> None:
    """Chooses the native kernels where they are built, for this number of threads; done before a model is loaded.

    Args:
        num_threads: threads that compute.
        instruction_set: what the native kernels are forced to; "reference" leaves them out; empty for the best.

    Raises:
        ConfigError: this processor does not have that instruction set.
    """
    max_uncut_inputs()  # tries the library out now, for this number of threads: no step, nor a profile, holds it
    if instruction_set == REFERENCE:
        select_providers({op.name: REFERENCE for op in all_ops()})
        return
    configure(num_threads, instruction_set)
    select_providers()
