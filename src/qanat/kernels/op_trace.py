"""Records calls of ops: which, in which step, on which shapes, when and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from qanat.kernels.registry import Op, all_ops
from qanat.kernels.rows import SharedRows


class OpCall(NamedTuple):
    """One call.

    Attributes:
        op: name of the op.
        provider: name of the implementation.
        step_id: of the step that called it.
        start_ns: on the clock of `time.perf_counter_ns`.
        duration_ns: until the call returned to the host.
        shapes: of the arguments that are tensors, in order.
    """

    op: str
    provider: str
    step_id: int
    start_ns: int
    duration_ns: int
    shapes: tuple[tuple[int, ...], ...]


class OpTrace:
    """Records every call between `start` and `stop`; before and after them a call costs what it costs without.

    Nothing asks on a call whether a trace runs: `start` exchanges the functions that the ops call. For one thread at a
    time, that which computes.

    Attributes:
        calls: what was recorded so far, in order.
        step_id: of the step that computes now; whoever runs steps sets it.
    """

    def __init__(self) -> None:
        self.calls: list[OpCall] = []
        self.step_id = -1

    def start(self) -> None:
        """Records from now on."""
        for op in all_ops():
            op.wrap(lambda function, op=op: self._recorded(op, function))

    def stop(self) -> None:
        """Records nothing from now on."""
        for op in all_ops():
            op.unwrap()

    def _recorded(self, op: Op[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        name, provider = op.name, op.chosen.name
        record, now_ns = self.calls.append, time.perf_counter_ns

        def call(*args: Any, **kwargs: Any) -> Any:
            start_ns = now_ns()
            result = function(*args, **kwargs)
            duration_ns = now_ns() - start_ns
            tensors = (*args, *kwargs.values()) if kwargs else args
            shapes = tuple(tuple(value.shape) for value in tensors if isinstance(value, Tensor | SharedRows))
            record(OpCall(name, provider, self.step_id, start_ns, duration_ns, shapes))
            return result

        return call
