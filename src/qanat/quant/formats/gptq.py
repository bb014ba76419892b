"""The scheme of GPTQ checkpoints: `quant_method` gptq in config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from qanat.core.errors import CheckpointError
from qanat.quant.formats.common import CheckpointScheme, whole_number
from qanat.quant.formats.gptq_matrix import NOTE, ROUNDED_NOTE, Gptq
from qanat.quant.source import SchemeSource
from qanat.quant.stored import MatrixFormat

BITS = (4, 8)
NEVER = ("lm_head", "embed_tokens", "mlp.gate", "shared_expert_gate")
"""Matrices that these checkpoints leave in 16 bits, for plans without the files."""


def gptq_scheme(source: SchemeSource) -> CheckpointScheme:
    """The scheme of a folder whose config.json says gptq. Where the files are there, their names decide.

    Raises:
        CheckpointError: config.json asks for something that is not known.
    """
    section = source.config.quantization_config or {}
    where = f"{source.folder / 'config.json'}: quantization_config"
    bits, is_symmetric = section.get("bits"), bool(section.get("sym", True))
    is_ordered = bool(section.get("desc_act", False))
    if bits not in BITS:
        raise CheckpointError(f"{where} has bits {bits!r}; this version reads 4 and 8")
    shift = {"gptq": 1, "gptq_v2": 0}.get(str(section.get("checkpoint_format", "gptq")))
    if shift is None:
        raise CheckpointError(
            f"{where} has checkpoint_format {section['checkpoint_format']!r}; this version reads gptq and gptq_v2"
        )
    excluded = _exclusions(section, where)
    group_size = whole_number(section, "group_size", 128, where)
    is_exact = bits == 4 and is_symmetric and not is_ordered

    def format_of(matrix: str) -> MatrixFormat | None:
        if source.headers:
            if f"{matrix}.qweight" not in source.headers:
                return None
        elif matrix.endswith(NEVER) or any(pattern.match(matrix) for pattern in excluded):
            return None
        has_index = not source.headers or f"{matrix}.g_idx" in source.headers
        if is_ordered and not has_index:
            raise CheckpointError(
                f"{source.folder} lacks tensor {matrix + '.g_idx'!r}, although config.json says desc_act"
            )
        note = NOTE if is_exact else ROUNDED_NOTE
        return Gptq(f"GPTQ {bits} bits", note, bits, group_size, is_ordered, is_symmetric, has_index, shift)

    return CheckpointScheme("gptq", format_of, source.headers)


def _exclusions(section: Mapping[str, Any], where: str) -> list[re.Pattern[str]]:
    """Patterns of the matrices that `dynamic` leaves out.

    Raises:
        CheckpointError: `dynamic` is no object; a rule is no regular expression, or sets other bits for some matrices.
    """
    patterns = []
    rules = section.get("dynamic") or {}
    if not isinstance(rules, Mapping):
        raise CheckpointError(f"{where}: dynamic is no object of rules")
    for rule, changes in rules.items():
        if not rule.startswith("-:"):
            if changes:
                raise CheckpointError(
                    f"{where}: the rule {rule!r} of dynamic sets {sorted(changes)}, which is not read"
                )
            rule = f"-:{re.escape(rule)}$"
        try:
            patterns.append(re.compile(rule.removeprefix("-:")))
        except re.error as error:
            raise CheckpointError(f"{where}: {rule!r} is no regular expression ({error})") from error
    return patterns
