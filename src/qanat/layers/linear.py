"""Products with weight matrices, whatever format the weights are in."""

from __future__ import annotations

from torch import Tensor, nn

from qanat.kernels import ops
from qanat.layers.context import ForwardContext
from qanat.quant.base import LinearMethod, LinearSizes
from qanat.quant.parameter import ParameterFactory, ParameterInfo
from qanat.quant.unquantized import UnquantizedLinear


class LinearBase(nn.Module):
    """Product with a matrix, without bias; the method object holds the format."""

    def __init__(self, sizes: LinearSizes, factory: ParameterFactory) -> None:
        """Registers the method's parameters."""
        super().__init__()
        self.sizes = sizes
        self.method: LinearMethod = UnquantizedLinear()
        self.method.create(self, sizes, factory)

    def forward(self, x: Tensor, context: ForwardContext) -> Tensor:
        """[T, in] -> [T, out]."""
        return self.method.apply(self, x, context)


class ColumnParallelLinear(LinearBase):
    """Tensor parallelism splits the outputs.

    Args:
        num_inputs, num_outputs: columns and rows of the matrix.
        sections: parts of the outputs that are each split on their own; empty for one part.
    """

    def __init__(
        self, num_inputs: int, num_outputs: int, factory: ParameterFactory, sections: tuple[int, ...] = ()
    ) -> None:
        """Registers the parameters."""
        super().__init__(LinearSizes(num_inputs, num_outputs, 0, sections), factory)


class RowParallelLinear(LinearBase):
    """Tensor parallelism splits the inputs; the ranks' partial sums are added."""

    def __init__(self, num_inputs: int, num_outputs: int, factory: ParameterFactory) -> None:
        """Registers the parameters."""
        super().__init__(LinearSizes(num_inputs, num_outputs, 1), factory)


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

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, C] -> [T, V] fp32."""
        return self.method.logits(self, hidden)


class Embedding(nn.Module):
    """Token ids to rows; where embeddings are tied, also the head."""

    def __init__(self, vocab_size: int, hidden_size: int, factory: ParameterFactory) -> None:
        """Registers `weight` [V, C]."""
        super().__init__()
        info = ParameterInfo(shard_axis=0, dummy_std=1.0)
        self.weight = factory.make((vocab_size, hidden_size), info)

    def forward(self, token_ids: Tensor) -> Tensor:
        """[T] -> [T, C]."""
        return ops.embedding(token_ids, self.weight)

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, C] -> [T, V] fp32, with the table as the head."""
        return ops.logits(hidden, self.weight)
