"""Graphs on the CPU: what a function calls is kept on tapes and run again without Python, but for host nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from qanat.core.errors import QanatError
from qanat.kernels.native.aliases import alias, map_tensors, tensors_in
from qanat.kernels.native.arena import NO_ARENA, new, outputs_in
from qanat.kernels.native.module import native
from qanat.kernels.native.register import NATIVE
from qanat.kernels.recording import CURRENT, host_call
from qanat.kernels.registry import all_ops

_MAKES_ROOM = (
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::new_empty",
    "aten::new_empty_strided",
)


class GraphCaptureError(QanatError):
    """A function cannot be recorded: what it does next depends on a value."""

    code = "graph_capture_error"


class NativeGraph:
    """A recorded call.

    Attributes:
        result: what the call returned; `replay` writes new values to the same tensors.
        num_ops: native ops on its tapes.
        host_nodes: names of the functions that are called between the tapes, in order.
        arena: where what it computes lies; its `used_bytes` are those of the result.
    """

    def __init__(self, recorder: _Recorder, result: Any) -> None:
        self.result = result
        self.host_nodes = tuple(recorder.host_nodes)
        self.num_ops = sum(tape.num_ops for tape in recorder.tapes)
        self._steps = tuple(recorder.steps)
        self._kept = tuple(recorder.kept)
        self.arena = recorder.arena
        self.replay: Callable[[], None] = self._steps[0] if len(self._steps) == 1 else self._replay
        """Runs everything again, on what the inputs hold by now."""

    @torch.inference_mode()
    def _replay(self) -> None:
        for step in self._steps:
            step()


def capture(function: Callable[[], Any], arena: Any, host_ops: Collection[str] = ()) -> NativeGraph:
    """Calls a function and records what it does.

    Args:
        function: reads nothing but tensors that stay where they are; its native ops go on tapes.
        arena: where outputs of ops and host nodes lie, as if it were empty: whoever shares its memory must not need it
            while the graph replays, nor may the graph's results be needed after another replay there.
        host_ops: ops that are called from Python at each replay, as between the parts of a piecewise graph.

    Raises:
        GraphCaptureError: the function asks for a tensor's values outside a host node.
    """
    recorder = _Recorder(arena)
    with outputs_in(arena), recorder, _ops_as_host_nodes(host_ops):
        result = recorder.record(function)
    return NativeGraph(recorder, result)


class _Recorder(TorchDispatchMode):
    """Cuts the calls of one function into tapes and host nodes.

    Torch's own operators show up here: those that compute become host nodes as well, those that make views need not be
    repeated. What a host node takes and gives lies in the arena like the rest, and the node knows its address alone, so
    that regions are used again when their tensors die.
    """

    def __init__(self, arena: Any) -> None:
        super().__init__()
        self.arena = arena
        self.tapes: list[Any] = []
        self.steps: list[Callable[[], None]] = []
        self.host_nodes: list[str] = []
        self.kept: list[Any] = []
        self._is_paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Torch would load its compiler, for seconds, only to switch it off for the method below.
        return False

    def record(self, function: Callable[[], Any]) -> Any:
        """Calls it."""
        CURRENT.recorder = self
        self._begin_tape()
        try:
            return function()
        finally:
            self._end_tape()
            CURRENT.recorder = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """One of torch's operators."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._is_paused:
            return result
        name, results = func._schema.name, tensors_in(result)
        if not results:
            raise GraphCaptureError(f"{name} asks for a value, which no graph can hold")
        if name in _MAKES_ROOM:
            self.kept.append(result)
        elif func._schema.is_mutable or not _are_views(results, tensors_in((args, kwargs))):
            self._end_tape()
            result = self._add_node(func, args, kwargs, result, name)
            self._begin_tape()
        return result

    def host_node(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """See `qanat.kernels.recording.Recorder`."""
        if self._is_paused:
            return function(*args)
        self._end_tape()
        self._is_paused = True
        try:
            with outputs_in(NO_ARENA):
                result = function(*args)
            result = self._add_node(function, args, {}, result, getattr(function, "__name__", str(function)))
        finally:
            self._is_paused = False
        self._begin_tape()
        return result

    def _add_node(self, function: Callable[..., Any], args: Any, kwargs: Any, result: Any, name: str) -> Any:
        """Returns the result as it lies in the arena."""
        given = tensors_in((args, kwargs))
        result = map_tensors(result, lambda tensor: tensor if _are_views([tensor], given) else _moved(tensor))
        own_args, own_kwargs, stored = (
            map_tensors(value, self._lent) for value in (args, kwargs, tensors_in(result))
        )

        def node() -> None:
            for old, latest in zip(stored, tensors_in(function(*own_args, **own_kwargs)), strict=True):
                if latest.data_ptr() != old.data_ptr():
                    old.copy_(latest)

        self.host_nodes.append(name)
        self.steps.append(node)
        return result

    def _lent(self, tensor: Tensor) -> Tensor:
        """Its address where it lies in the arena, which nobody gives back; the tensor itself elsewhere."""
        return alias(tensor) if self.arena.holds(tensor.untyped_storage().data_ptr()) else tensor

    def _begin_tape(self) -> None:
        tape = native().Tape()
        tape.begin()
        self.tapes.append(tape)

    def _end_tape(self) -> None:
        tape = self.tapes[-1]
        tape.end()
        if tape.num_ops:
            self.steps.append(tape.replay)


def _moved(tensor: Tensor) -> Tensor:
    """A copy where outputs of ops lie."""
    return new(tensor.shape, tensor.dtype).copy_(tensor)


def _are_views(results: list[Tensor], inputs: list[Tensor]) -> bool:
    memories = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return all(result.untyped_storage().data_ptr() in memories for result in results)


@contextmanager
def _ops_as_host_nodes(names: Collection[str]) -> Iterator[None]:
    """Within it, these ops and all that are not native are called as host nodes."""
    wrapped = [op for op in all_ops() if op.chosen.name != NATIVE or op.name in names]
    for op in wrapped:
        op.wrap(lambda function: functools.partial(host_call, function))
    try:
        yield
    finally:
        for op in wrapped:
            op.unwrap()
