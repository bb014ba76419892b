"""Which provider every op gets in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.kernels import ops
from qanat.kernels.native.coverage import uncovered
from qanat.kernels.native.layout import layout_digest
from qanat.kernels.native.module import check_instruction_set, configure, instruction_sets, is_built, why_not
from qanat.kernels.native.packed import PackedWeight, is_packable, packed_bytes
from qanat.kernels.native.register import NATIVE
from qanat.kernels.packing import Packed
from qanat.kernels.quantised import QuantisedMatrix
from qanat.kernels.reference.uncut import max_uncut_inputs
from qanat.kernels.registry import REFERENCE, all_ops, format_op_table, select_providers

PRODUCTS = ("linear", "logits", "moe_experts", "paged_attention")
"""Ops whose reference depends on what this processor's library does."""


def choose_providers(num_threads: int, instruction_set: str = "", processors: tuple[int, ...] = ()) -> None:
    """Chooses the native kernels where they are built, for this number of threads; done before a model is loaded.

    Args:
        num_threads: threads that compute.
        instruction_set: what the native kernels are forced to; "reference" leaves them out; empty for the best.
        processors: that the threads are pinned to, the caller's first; empty for none.

    Raises:
        ConfigError: this processor does not have that instruction set.
    """
    if instruction_set == REFERENCE:
        select_providers({op.name: REFERENCE for op in all_ops()})
        return
    configure(num_threads, instruction_set, processors)
    select_providers()


def is_native() -> bool:
    """True if native kernels were chosen for any op."""
    return any(op.chosen.name == NATIVE for op in all_ops())


def why_no_graphs(model: ModelConfig, dtype: str, instruction_set: str = "") -> str:
    """Why steps cannot run as graphs with these settings; empty if they can.

    Args:
        model: its shape.
        dtype: of weights and activations.
        instruction_set: see `choose_providers`.
    """
    if not is_built():
        return f"graphs are made of native ops, and {why_not()}"
    if instruction_set == REFERENCE:
        return "graphs are made of native ops, and QANAT_ISA asks for the reference"
    names = [op.name for op in all_ops()]
    if len(uncovered(model, dtype, names)) == len(names):
        return f"graphs are made of native ops, and {dtype} is not covered by them"
    return ""


def try_reference(model: ModelConfig, dtype: str) -> None:
    """Has the reference's products tried out where they will run, so that no step, nor a profile, is held up by it.

    Args:
        model: its shape.
        dtype: of weights and activations.
    """
    left = left_to_reference(model, dtype)
    if any(op.chosen.name == REFERENCE or op.name in left for op in all_ops() if op.name in PRODUCTS):
        max_uncut_inputs()


def packed_layout() -> str:
    """Digest of how the chosen kernels pack; empty if they pack nothing.

    Small matrices of every kind are packed for it, so that no change of a layout can go unnoticed.
    """
    if ops.pack_matrix.chosen.name != NATIVE:
        return ""
    return layout_digest()


def map_packed(header: Mapping[str, Any], address: int, keep_alive: object) -> Packed:
    """The packed weight whose memory lies at an address for as long as `keep_alive` does.

    Args:
        header: as `Packed.header` told it.
        address: a multiple of 64.
        keep_alive: holds the memory.

    Raises:
        KeyError, TypeError, ValueError: that is no header.
    """
    return PackedWeight.mapped(header, address, keep_alive)


def stored_bytes(weight: Tensor | QuantisedMatrix, instruction_set: str = "") -> int:
    """What a matrix that products read takes once it is loaded, and packed where it will be; no values are needed."""
    is_packed = is_built() and instruction_set != REFERENCE and is_packable(weight)
    return packed_bytes(weight) if is_packed else weight.nbytes


def left_to_reference(model: ModelConfig, dtype: str) -> dict[str, str]:
    """Why, by op, the reference runs although the native provider is chosen."""
    chosen = [op.name for op in all_ops() if op.chosen.name == NATIVE]
    reasons = uncovered(model, dtype, chosen)
    return {name: why for name, why in reasons.items() if name in chosen}


def op_table(model: ModelConfig, dtype: str) -> list[str]:
    """What runs for each op of this model, one line each, for the log at start-up."""
    return format_op_table(left_to_reference(model, dtype)).splitlines()


def kernels_sentence(model: ModelConfig, dtype: str, instruction_set: str = "") -> str:
    """Which kernels a start with these settings would use, for `qanat plan`.

    Args:
        model: its shape.
        dtype: of weights and activations.
        instruction_set: see `choose_providers`.

    Raises:
        ConfigError: this processor does not have that instruction set.
    """
    if not is_built():
        return f"torch reference kernels: {why_not()}"
    if instruction_set == REFERENCE:
        return "torch reference kernels, as QANAT_ISA asks for"
    check_instruction_set(instruction_set)
    sentence = f"native, {instruction_set or instruction_sets()[-1]} (of {', '.join(instruction_sets())})"
    reasons = uncovered(model, dtype, [op.name for op in all_ops()])
    if len(set(reasons.values())) == 1 and len(reasons) > 1:
        return f"torch reference kernels: {next(iter(reasons.values()))} by the native ones"
    parts = [f"{name} by the reference ({why})" for name, why in reasons.items()]
    return "; ".join([sentence, *parts])
