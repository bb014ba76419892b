"""What executors share whose worker, or rank 0's worker, lives in the calling process."""

from __future__ import annotations

from collections.abc import Callable

from qanat.core.errors import QanatError
from qanat.core.prefix_entry import PrefixOrder
from qanat.core.profile import ProfileReport
from qanat.executor.step_thread import StepThread
from qanat.worker.worker import Worker


class OwnWorker:
    """The part of an `Executor` that asks the worker of this process; None before it is loaded and after the end.

    Args:
        is_overlapped: steps have a thread of their own, so that the caller can do something else meanwhile.
    """

    _worker: Worker | None = None

    def __init__(self, is_overlapped: bool) -> None:
        self._steps = StepThread(is_overlapped)

    def op_table(self) -> list[str]:
        """Provider of each kernel, one line per op."""
        return self._worker.op_table() if self._worker is not None else []

    def start_profile(self) -> None:
        """Records steps of this process's worker from the next one on; see `Executor`."""
        self._steps.call(self._loaded().profiler.start)

    def stop_profile(self, on_report: Callable[[ProfileReport | QanatError], None]) -> None:
        """Ends the profile; see `Executor`."""
        profiler = self._loaded().profiler
        self._steps.call(lambda: profiler.stop(on_report))

    def end_overdue_profile(self) -> None:
        """Ends a profile that has run for as long as it may."""
        if self._worker is not None and self._worker.profiler.is_running:
            self._steps.call(self._worker.profiler.end_overdue)

    @property
    def is_keeping(self) -> bool:
        """True while rank 0 writes a piece of the prefix cache."""
        return self._worker is not None and self._worker.is_keeping

    def keep(self, order: PrefixOrder) -> bool:
        """Has the prefix cache's pieces written, read or removed; see `Executor`."""
        worker = self._loaded()
        return self._steps.call(lambda: worker.keep(order))

    def _loaded(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("the executor was shut down")
        return self._worker
