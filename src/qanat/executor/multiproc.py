"""The executor with one worker per rank: the first in the calling process, each other one in a process of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

import msgspec

from qanat.config.resolved import ResolvedConfig
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import CapacityError, EngineDeadError, error_of
from qanat.core.log_lines import present_format
from qanat.core.memory_plan import MemoryPlan
from qanat.executor.own_worker import OwnWorker
from qanat.executor.rank_messages import (
    RankFailed,
    RankLoaded,
    RankReport,
    RankStart,
    check_report,
    report_of,
    without_choices,
)
from qanat.executor.rank_processes import COMMAND, LAST_WORD_S, Peer, RankProcesses
from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import Meeting, ParallelGroup
from qanat.worker.worker import Worker

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 60.0
"""A rank must have reported, and all of them must be connected, within this or --init-timeout-s, if that is less."""
POLL_S = 0.05


class MultiprocExecutor(OwnWorker):
    """An `Executor` over a tensor-parallel group on this host.

    Every rank computes each batch with the same `Worker`; rank 0 alone chooses tokens, makes profiles and reports. A
    step that fails on any rank ends the group, as the others cannot know how far it came.

    Args:
        config: the resolved configuration; its `tensor_parallel_size` is the number of ranks.
        memory_plan: from `qanat.executor.planning`, of one rank.
        matcher_factory: for requests whose output has a form; without it there may be none.
        command: starts another rank's process.

    Raises:
        CapacityError: a rank has less memory than it is to allocate.
        CheckpointError: the model folder cannot be served.
        EngineDeadError: a rank died, did not report in time, or has other versions or another configuration.
    """

    def __init__(
        self,
        config: ResolvedConfig,
        memory_plan: MemoryPlan,
        matcher_factory: MatcherFactory | None = None,
        *,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.memory_plan = memory_plan
        self._config = config
        self._encoder = msgspec.msgpack.Encoder()
        self._deadline_s = time.monotonic() + config.init_timeout_s
        join_timeout_s = min(JOIN_TIMEOUT_S, config.init_timeout_s)
        self._join_deadline_s = time.monotonic() + join_timeout_s
        platform = CpuPlatform()
        meeting = platform.meeting(None, join_timeout_s)
        starts = [
            RankStart(
                rank,
                config,
                memory_plan,
                meeting.port,
                join_timeout_s,
                logging.getLogger().getEffectiveLevel(),
                present_format(),
            )
            for rank in range(1, config.tensor_parallel_size)
        ]
        self._ranks = RankProcesses(starts, command)
        self._worker: Worker | None = None
        self._death: EngineDeadError | None = None
        try:
            own = report_of(0, config, meeting.address, platform.memory().available_bytes)
            self._hear_reports(own)
            group = self._join(meeting)
            worker = Worker(config, memory_plan, platform, matcher_factory, group)
            worker.load()
            self._await_loaded()
        except BaseException:
            self._ranks.stop()
            raise
        self._worker = worker

    def execute(self, batch: ScheduledBatch) -> Future[StepOutput]:
        """Runs the step on all ranks; the future is done, with rank 0's result or with what ended the group."""
        future: Future[StepOutput] = Future()
        worker = self._loaded()
        if self._death is None:
            try:
                self._ranks.send(self._encoder.encode(without_choices(batch)))
                future.set_result(worker.execute(batch))
            except Exception as error:  # whoever asks for the result meets it
                self._death = self._cause(error)
        if self._death is not None:
            future.set_exception(self._death)
        return future

    def check(self) -> None:
        """Looks whether all ranks still live; see `Executor`."""
        if self._death is None:
            try:
                self._ranks.check()
            except EngineDeadError as error:
                self._death = error
        if self._death is not None:
            raise self._death

    def shutdown(self) -> None:
        """Ends the other processes; releases the model and the cache."""
        self._worker = None
        self._ranks.stop()

    def _cause(self, error: Exception) -> EngineDeadError:
        """What a failed step means: a rank that died explains it, or rank 0 itself failed."""
        if isinstance(error, EngineDeadError):
            return error
        try:
            self._ranks.check(LAST_WORD_S)
        except EngineDeadError as death:
            # A new one: where the collective broke on this rank explains nothing and would stand in the log first.
            return EngineDeadError(death.message)
        logger.error("The step failed on rank 0.", exc_info=error)
        return EngineDeadError(
            f"A step failed on rank 0, which ends all ranks: {type(error).__name__}: {error}"
        )

    def _hear_reports(self, own: RankReport) -> None:
        """Waits for every rank's report and compares it; says which one is silent."""
        _log_report(own)
        for peer in self._ranks.peers:
            report = self._next(peer, self._join_deadline_s, "did not report")
            assert isinstance(report, RankReport)
            check_report(own, report)
            if report.available_bytes < self.memory_plan.total_bytes:
                raise CapacityError(
                    f"{peer.name} on {report.host} can take {report.available_bytes:,} bytes, and each rank needs "
                    f"{self.memory_plan.total_bytes:,}. Lower --memory-share or --kv-cache-memory-bytes."
                )
            _log_report(report)

    def _join(self, meeting: Meeting) -> ParallelGroup:
        """Connects all ranks; in a thread, so that one that dies meanwhile is noticed."""
        joined: Future[ParallelGroup] = Future()
        size, timeout_s = self._config.tensor_parallel_size, self._config.step_timeout_s

        def join() -> None:
            try:
                joined.set_result(meeting.join(0, size, timeout_s))
            except Exception as error:
                joined.set_exception(error)

        threading.Thread(target=join, name="join-group", daemon=True).start()
        while True:
            try:
                return joined.result(POLL_S)
            except TimeoutError:
                self._ranks.check()
                if time.monotonic() > self._join_deadline_s:
                    raise EngineDeadError(f"The ranks did not connect {self._within()}.") from None
            except Exception as error:
                raise EngineDeadError(f"The ranks could not connect: {error}") from error

    def _await_loaded(self) -> None:
        for peer in self._ranks.peers:
            message = self._next(peer, self._deadline_s, "did not load its share of the model")
            assert isinstance(message, RankLoaded)

    def _next(self, peer: Peer, deadline_s: float, failing: str) -> RankReport | RankLoaded:
        message = peer.receive(deadline_s - time.monotonic())
        if message is None:
            raise EngineDeadError(f"{peer.name} {failing} {self._within()}.")
        if isinstance(message, RankFailed):
            raise error_of(message.code, f"{peer.name}: {message.message}")
        return message

    def _within(self) -> str:
        seconds = min(JOIN_TIMEOUT_S, self._config.init_timeout_s)
        return f"within {seconds:.0f} s (at most --init-timeout-s, now {self._config.init_timeout_s:.0f})"


def _log_report(report: RankReport) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    logger.info(
        "Rank %d: process %d on %s (%s), %s, configuration %s",
        report.rank,
        report.pid,
        report.host,
        report.address,
        versions,
        report.config_digest[:12],
    )
