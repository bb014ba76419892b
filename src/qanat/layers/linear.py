"""Products with weight matrices, whatever format the weights are in."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from qanat.kernels import ops
from qanat.kernels.rows import Rows
from qanat.layers.context import ForwardContext
from qanat.platforms.groups import ParallelGroup, SingleGroup
from qanat.quant.base import LinearMethod, LinearSizes
from qanat.quant.parameter import ParameterFactory
from qanat.quant.unquantized import UnquantizedEmbedding, UnquantizedLinear


class LinearBase(nn.Module):
    """Product with a matrix, without bias; the method object holds the format."""

    def __init__(self, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers the method's parameters."""
        super().__init__()
        self.sizes = sizes
        self.method: LinearMethod = UnquantizedLinear()
        self.method.create(self, sizes, factory)

    def forward(self, x: Rows, context: ForwardContext) -> Tensor:
        """[T, in] -> [T, out]."""
        return self.method.apply(self, x, context)

    @property
    def matrix(self) -> Any:
        """What `ops.linear` multiplies with, where it is all that a call does; None otherwise.

        A layer with hooks is called by itself, so that they see its inputs.
        """
        return None if self._forward_pre_hooks or self._forward_hooks else self.method.matrix(self)


def linears(x: Rows, context: ForwardContext, *layers: LinearBase) -> tuple[Tensor, ...]:
    """What layers whose results stay on their rank make of the same rows, in one call where that is all they do."""
    matrices = [layer.matrix for layer in layers]
    if any(matrix is None for matrix in matrices):
        return tuple(layer(x, context) for layer in layers)
    return ops.linears(x, matrices)


class ColumnParallelLinear(LinearBase):
    """Tensor parallelism splits the outputs.

    Args:
        num_inputs, num_outputs: columns and rows of the whole matrix.
        sections: parts of the outputs that are each split on their own; empty for one part.
        num_units: heads in each section, which are never cut; empty where any row may be a boundary.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        factory: ParameterFactory,
        sections: tuple[int, ...] = (),
        num_units: tuple[int, ...] = (),
    ) -> None:
        """Registers the parameters."""
        super().__init__(LinearSizes(num_inputs, num_outputs, 0, sections, num_units), factory)


class RowParallelLinear(LinearBase):
    """Tensor parallelism splits the inputs; the ranks' partial sums are added.

    Args:
        num_inputs, num_outputs: columns and rows of the whole matrix.
        num_heads: heads that the inputs are made of, which are never cut; 0 where any column may be a boundary.
        is_reduced: False leaves the partial sum to a caller who adds more to it before the ranks exchange it.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        factory: ParameterFactory,
        *,
        num_heads: int = 0,
        is_reduced: bool = True,
    ) -> None:
        """Registers the parameters."""
        num_units = (num_heads,) if num_heads else ()
        super().__init__(LinearSizes(num_inputs, num_outputs, 1, num_units=num_units), factory)
        self._group: ParallelGroup = factory.group if is_reduced else SingleGroup()

    def forward(self, x: Rows, context: ForwardContext) -> Tensor:
        """This rank's part of the inputs [T, in] -> [T, out]."""
        if self._group.size == 1:
            return self.method.apply(self, x, context)
        # Exchanged in fp32 and rounded once, as one rank does (rule R12).
        return self._group.all_reduce(self.method.logits(self, x)).to(x.dtype)


class ReplicatedLinear(LinearBase):
    """Every rank computes all of it: routers and single gates."""

    def __init__(self, num_inputs: int, num_outputs: int, factory: ParameterFactory) -> None:
        """Registers the parameters."""
        super().__init__(LinearSizes(num_inputs, num_outputs), factory)


class LogitsHead(LinearBase):
    """Hidden rows to scores of the vocabulary, in fp32."""

    def __init__(self, hidden_size: int, vocab_size: int, factory: ParameterFactory) -> None:
        """Registers the parameters."""
        super().__init__(LinearSizes(hidden_size, vocab_size, 0), factory)
        self._group = factory.group

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, C] -> [T, V] fp32, on every rank."""
        return self._group.all_gather(self.method.logits(self, hidden))


class Embedding(nn.Module):
    """Token ids to rows; where embeddings are tied, also the head.

    Args:
        vocab_size, hidden_size: rows and columns of the table.
        is_head: the embeddings are tied: the table is the head too.
    """

    def __init__(
        self, vocab_size: int, hidden_size: int, factory: ParameterFactory, *, is_head: bool = False
    ) -> None:
        """Registers the method's parameters."""
        super().__init__()
        self.is_head = is_head
        self.sizes = LinearSizes(hidden_size, vocab_size, 0)
        self.num_rows = vocab_size // factory.group.size
        self._group = factory.group
        self._dtype = factory.dtype
        self.method: LinearMethod = UnquantizedEmbedding()
        self.method.create(self, self.sizes, factory)

    def forward(self, token_ids: Tensor) -> Tensor:
        """[T] -> [T, C]."""
        if self._group.size == 1:
            return self.method.rows(self, token_ids, self._dtype).to(self._dtype)
        num_own = self.num_rows
        own_ids = token_ids - self._group.rank * num_own
        is_own = (own_ids >= 0) & (own_ids < num_own)
        rows = self.method.rows(self, own_ids.clamp(0, num_own - 1), self._dtype).to(self._dtype)
        # One rank has the row and the others add zeros, so the sum is the row itself.
        return self._group.all_reduce(rows.masked_fill(~is_own.unsqueeze(1), 0))

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, C] -> [T, V] fp32, on every rank, with the table as the head."""
        return self._group.all_gather(self.method.logits(self, hidden))
