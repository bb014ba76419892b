"""How large a rank's share of a model's weights is, without loading them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from torch import Tensor

from qanat.config.env import wanted_instruction_set
from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.kernels.providers import stored_bytes
from qanat.models.decoder import LoadedModel
from qanat.models.eagle3_loader import build_eagle3
from qanat.models.quantised import scheme_without_weights
from qanat.models.registry import build_model
from qanat.models.units import load_units
from qanat.platforms.groups import PlannedGroup
from qanat.quant.base import StoredKind
from qanat.worker.cache_tensors import DTYPES

MIB = 2**20
OTHER = "norms and other vectors"


@dataclass(frozen=True)
class WeightSummary:
    """One rank's share of the weights, as the kernels will store it.

    Attributes:
        kinds: matrices by the way they are stored, the largest first; the last is what is no matrix.
        decisions: of a quantised model, what becomes of each kind, and what its scheme decided.
    """

    kinds: tuple[StoredKind, ...]
    decisions: tuple[Decision, ...]

    @property
    def size_bytes(self) -> int:
        """Of everything together."""
        return sum(kind.size_bytes for kind in self.kinds)


def weight_summary(config: ResolvedConfig) -> WeightSummary:
    """Sizes of the parameters of one rank, each as the kernels will store it, tied ones counted once.

    All ranks have equal shares. Weights are not read, only what the files say about them.

    Raises:
        CheckpointError: the model's family has no code, or its quantisation is not known.
    """
    folder = Path(config.model_path)
    scheme = None
    if config.quantization:
        scheme = scheme_without_weights(config.quantization, folder, config.model)
    group = PlannedGroup(0, config.tensor_parallel_size)
    model = build_model(config.model, DTYPES[config.dtype], "meta", group, scheme)
    wanted = wanted_instruction_set()

    def measure(matrix: Tensor) -> int:
        return stored_bytes(matrix, wanted)

    found: list[StoredKind] = []
    others: list[Tensor] = []
    models: list[LoadedModel] = [model]
    if config.speculative.eagle3 is not None:
        models.append(build_eagle3(config.speculative.eagle3, DTYPES[config.dtype]))
    for unit in chain.from_iterable(map(load_units, models)):
        if unit.module is None:
            others += unit.parameters.values()
        else:
            found += unit.module.method.kinds(unit.module, measure)  # type: ignore[union-attr, operator]
    rest = StoredKind(OTHER, "", len(others), sum(parameter.nbytes for parameter in others))
    kinds = (*_sums(found), rest)
    return WeightSummary(
        kinds, (*map(_decision, kinds[:-1]), *scheme.decisions()) if scheme is not None else ()
    )


def weight_bytes(config: ResolvedConfig) -> int:
    """The same as one sum.

    Raises:
        CheckpointError: see `weight_summary`.
    """
    return weight_summary(config).size_bytes


def _decision(kind: StoredKind) -> Decision:
    what = f"{kind.stored}: {kind.num_matrices:,} matrices, {kind.size_bytes / MIB:,.1f} MiB"
    is_same = kind.name == kind.stored
    return Decision("weights", None if is_same else kind.name, what, kind.note or _why(is_same=is_same))


def _why(*, is_same: bool) -> str:
    return "these matrices are not quantised" if is_same else "they are multiplied as they are stored"


def _sums(found: Sequence[StoredKind]) -> list[StoredKind]:
    """One entry for each name and way of storing, the largest first."""
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for kind in found:
        total = sums[kind.name, kind.stored, kind.note]
        total[0] += kind.num_matrices
        total[1] += kind.size_bytes
    kinds = [StoredKind(name, stored, *total, note) for (name, stored, note), total in sums.items()]
    return sorted(kinds, key=lambda kind: -kind.size_bytes)
