"""How large a rank's share of a model's weights is, without loading them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from qanat.config.env import wanted_instruction_set
from qanat.config.resolved import ResolvedConfig
from qanat.core.decision import Decision
from qanat.kernels.providers import stored_bytes
from qanat.models.quantised import scheme_without_weights
from qanat.models.registry import build_model
from qanat.models.units import load_units
from qanat.platforms.groups import PlannedGroup
from qanat.quant.base import StoredKind
from qanat.worker.cache_tensors import DTYPES

OTHER = "norms and other vectors"


@dataclass(frozen=True)
class WeightSummary:
    """One rank's share of the weights, as the kernels will store it.

    Attributes:
        kinds: matrices by the way they are stored, the largest first; the last is what is no matrix.
        decisions: what is computed otherwise than the checkpoint has it.
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
    for unit in load_units(model):
        if unit.module is None:
            others += unit.parameters.values()
        else:
            found += unit.module.method.kinds(unit.module, measure)  # type: ignore[union-attr, operator]
    rest = StoredKind(OTHER, "", len(others), sum(parameter.nbytes for parameter in others))
    return WeightSummary((*_sums(found), rest), tuple(scheme.decisions()) if scheme is not None else ())


def weight_bytes(config: ResolvedConfig) -> int:
    """The same as one sum.

    Raises:
        CheckpointError: see `weight_summary`.
    """
    return weight_summary(config).size_bytes


def _sums(found: Sequence[StoredKind]) -> list[StoredKind]:
    """One entry for each name and way of storing, the largest first."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for kind in found:
        total = sums[kind.name, kind.stored]
        total[0] += kind.num_matrices
        total[1] += kind.size_bytes
    kinds = [StoredKind(name, stored, count, size) for (name, stored), (count, size) in sums.items()]
    return sorted(kinds, key=lambda kind: -kind.size_bytes)
