"""The executor with one worker per rank: the first in the calling process, each other one in a process of its own."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec

from qanat.config.cluster_key import cluster_secret
from qanat.config.resolved import ResolvedConfig
from qanat.core.addresses import LOOPBACK, resolved
from qanat.core.batch import ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import CapacityError, CheckpointError, EngineDeadError, QanatError, error_of
from qanat.core.log_lines import present_format
from qanat.core.memory_plan import MemoryPlan
from qanat.core.prefix_entry import PrefixOrder
from qanat.core.profile import ProfileReport
from qanat.executor.node_line import KEY_PURPOSE, group_secret
from qanat.executor.node_link import NodeLink, closed_on_failure
from qanat.executor.node_messages import NodeStart
from qanat.executor.own_worker import OwnWorker
from qanat.executor.peers import Peer
from qanat.executor.rank_messages import (
    KEEP,
    START_PROFILE,
    STOP_PROFILE,
    AllJoined,
    FromRank,
    Note,
    RankFailed,
    RankJoined,
    RankLoaded,
    RankReport,
    RankStart,
    without_choices,
)
from qanat.executor.rank_processes import COMMAND, RankProcesses
from qanat.executor.ranks import Ranks
from qanat.executor.reports import check_report, join_timeout_s, report_of
from qanat.executor.step_thread import Pending
from qanat.platforms.cpu import CpuPlatform
from qanat.platforms.groups import CollectiveError, Place
from qanat.platforms.metered import MeteredGroup
from qanat.platforms.notes import Notes
from qanat.worker.worker import Worker

logger = logging.getLogger(__name__)

POLL_S = 0.05
SECRET_BYTES = 32


class MultiprocExecutor(OwnWorker):
    """An `Executor` over a tensor-parallel group, on this host or on several.

    Every rank computes each batch with the same `Worker`; rank 0 alone chooses tokens and reports. A
    step that fails on any rank ends the group, as the others cannot know how far it came.

    Args:
        config: the resolved configuration; its `tensor_parallel_size` is the number of ranks.
        memory_plan: from `qanat.executor.planning`, of one rank.
        matcher_factory: for requests whose output has a form; without it there may be none.
        links: to the other hosts of the group, from `qanat.executor.gathering`; closed with the executor.
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
        links: Sequence[NodeLink] = (),
        command: Sequence[str] = COMMAND,
    ) -> None:
        super().__init__(config.scheduler.is_overlapped)
        self.memory_plan = memory_plan
        self._config = config
        self._encoder = msgspec.msgpack.Encoder()
        self._deadline_s = time.monotonic() + config.init_timeout_s
        self._join_timeout_s = join_timeout_s(config)
        self._join_deadline_s = time.monotonic() + self._join_timeout_s
        seed = secrets.token_bytes(SECRET_BYTES)
        self._secret = group_secret(cluster_secret(KEY_PURPOSE) if links else None, seed)
        self._worker: Worker | None = None
        self._group: MeteredGroup | None = None
        self._death: EngineDeadError | None = None
        platform = CpuPlatform()
        with closed_on_failure(links):
            self._address = resolved(config.parallel.master_addr) if links else LOOPBACK
            local = RankProcesses(self._starts(), command)
        self._ranks = Ranks(local, links, config.step_timeout_s)
        try:
            for link in links:
                link.start(
                    NodeStart(
                        config.scheduler,
                        config.graphs,
                        config.num_valid_token_ids,
                        memory_plan,
                        seed,
                        self._join_timeout_s,
                        config.step_timeout_s,
                    )
                )
            self._hear_reports(self._own_report(platform))
            group = self._join(platform)
            self._ranks.on_loss(group.abandon)
            worker = Worker(config, memory_plan, platform, matcher_factory, group)
            self._steps.call(worker.load)
            self._await_loaded()
        except BaseException as error:
            self._ranks.stop(str(error) or "node 0 was stopped")
            self._steps.stop()
            raise
        self._worker, self._group = worker, group

    @property
    def collective_s(self) -> float:
        """Seconds that rank 0 has spent in exchanges with the others, waiting for slower ones included."""
        return self._group.spent_s if self._group is not None else 0.0

    def execute(self, batch: ScheduledBatch) -> Pending[StepOutput]:
        """Runs the step on all ranks; what comes of it is rank 0's result, or what ended the group."""
        worker = self._loaded()
        return self._steps.submit(lambda: self._execute(worker, batch))

    def check(self) -> None:
        """Looks whether all ranks still live; see `Executor`. A step that is under way finds out itself."""
        if self._death is None and not self._steps.is_busy:
            try:
                self._ranks.check()
            except EngineDeadError as error:
                self._death = error
        if self._death is not None:
            raise self._death

    def keep(self, order: PrefixOrder) -> bool:
        """Passes the order on to all ranks; see `Executor`."""
        worker = self._loaded()
        return self._steps.call(lambda: self._keep(worker, order))

    def _keep(self, worker: Worker, order: PrefixOrder) -> bool:
        if self._death is not None:
            raise self._death
        try:
            self._ranks.send(KEEP + self._encoder.encode(order))
            return worker.keep(order)
        except (CollectiveError, EngineDeadError) as error:
            self._death = self._cause(error)
            raise self._death from None

    def start_profile(self) -> None:
        """Has every rank record steps from the next one on; see `Executor`."""
        super().start_profile()
        self._steps.call(lambda: self._ranks.send(START_PROFILE))

    def stop_profile(self, on_report: Callable[[ProfileReport | QanatError], None]) -> None:
        """Ends the profiles of all ranks; the report is of rank 0's, the others name their files in the log."""
        super().stop_profile(on_report)
        self._steps.call(lambda: self._ranks.send(STOP_PROFILE))

    def end_overdue_profile(self) -> None:
        """Ends profiles that have run for as long as they may."""
        was_running = self._worker is not None and self._worker.profiler.is_running
        super().end_overdue_profile()
        if was_running and self._worker is not None and not self._worker.profiler.is_running:
            self._steps.call(lambda: self._ranks.send(STOP_PROFILE))

    def shutdown(self) -> None:
        """Ends the other processes; releases the model and the cache."""
        self._steps.stop()
        self._worker = None
        self._ranks.stop(self._death.message if self._death is not None else "")

    def _execute(self, worker: Worker, batch: ScheduledBatch) -> StepOutput:
        if self._death is None:
            try:
                self._ranks.send(self._encoder.encode(without_choices(batch)))
                return worker.execute(batch)
            except Exception as error:
                self._death = self._cause(error)
        raise self._death

    def _starts(self) -> list[RankStart]:
        """What the other ranks of this host are told."""
        size = self._config.tensor_parallel_size // self._config.parallel.num_nodes
        return [
            RankStart(
                rank=rank,
                reader=rank - 1,
                num_readers=size - 1,
                config=self._config,
                memory_plan=self.memory_plan,
                address=self._address,
                secret=self._secret,
                join_timeout_s=self._join_timeout_s,
                log_level=logging.getLogger().getEffectiveLevel(),
                log_format=present_format(),
                # The system goes by the thread that has started it, and only this one lives as long as the process.
                dies_with_parent=threading.current_thread() is threading.main_thread(),
            )
            for rank in range(1, size)
        ]

    def _cause(self, error: Exception) -> EngineDeadError:
        """What a failed step means: a rank that died or stands still explains it, or rank 0 itself failed."""
        if isinstance(error, EngineDeadError):
            return error
        if isinstance(error, CollectiveError):
            assert self._group is not None
            # A new one: where the exchange broke on this rank explains nothing and would stand in the log first.
            return self._ranks.blame(self._group.num_entered)
        logger.error("The step failed on rank 0.", exc_info=error)
        return EngineDeadError(
            f"A step failed on rank 0, which ends all ranks: {type(error).__name__}: {error}"
        )

    def _own_report(self, platform: CpuPlatform) -> RankReport:
        try:
            return report_of(0, self._config, self._address, platform.memory().available_bytes)
        except OSError as error:
            raise CheckpointError(f"The weights cannot be read: {error}", param="--model") from None

    def _hear_reports(self, own: RankReport) -> None:
        """Waits for every rank's report and compares it; says which one is silent."""
        _log_report(own)
        for peer in self._ranks.peers:
            report = self._next(peer, self._join_deadline_s, "did not report")
            assert isinstance(report, RankReport)
            peer.identify(report)
            check_report(own, report)
            if report.available_bytes < self.memory_plan.total_bytes:
                raise CapacityError(
                    f"{peer.name} on {report.host} can take {report.available_bytes:,} bytes, and each rank needs "
                    f"{self.memory_plan.total_bytes:,}. Lower --memory-share or --kv-cache-memory-bytes."
                )
            _log_report(report)

    def _join(self, platform: CpuPlatform) -> MeteredGroup:
        """Connects all ranks; in a thread, so that their words are passed on and one that dies is noticed."""
        joined: Future[MeteredGroup] = Future()
        outbox: list[Note] = []
        notes = Notes(lambda key, value: outbox.append(Note(key, value)))
        config = self._config
        size = config.tensor_parallel_size
        place = Place(0, size, self._address, self._secret, self._join_timeout_s, config.step_timeout_s)

        def join() -> None:
            try:
                joined.set_result(MeteredGroup(platform.join(place, notes)))
            except Exception as error:
                joined.set_exception(error)

        threading.Thread(target=join, name="join-group", daemon=True).start()
        num_joined = 0
        while not joined.done() or outbox or num_joined < size - 1:
            while outbox:
                self._ranks.tell(outbox.pop(0))
            for peer, message in self._ranks.news(POLL_S):
                if isinstance(message, Note):
                    notes.put(message.key, message.value)
                    self._ranks.tell(message, but=peer.rank)
                elif isinstance(message, RankJoined):
                    num_joined += 1
            if joined.done() and joined.exception() is not None:
                raise EngineDeadError(f"The ranks could not connect: {joined.exception()}") from None
            if time.monotonic() > self._join_deadline_s:
                raise EngineDeadError(f"The ranks did not connect {self._within()}.")
        self._ranks.tell(AllJoined())
        return joined.result()

    def _await_loaded(self) -> None:
        for peer in self._ranks.peers:
            message = self._next(peer, self._deadline_s, "did not load its share of the model")
            assert isinstance(message, RankLoaded)

    def _next(self, peer: Peer, deadline_s: float, failing: str) -> FromRank:
        message = peer.receive(deadline_s - time.monotonic())
        if message is None:
            raise EngineDeadError(f"{peer.name} {failing} {self._within()}.")
        if isinstance(message, RankFailed):
            raise error_of(message.code, f"{peer.name}: {message.message}")
        return message

    def _within(self) -> str:
        given_s = self._config.init_timeout_s
        return f"within {self._join_timeout_s:.0f} s (at most half of --init-timeout-s, now {given_s:.0f})"


def _log_report(report: RankReport) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    logger.info(
        "Rank %d: process %d on %s (%s, %s), %s, configuration %s",
        report.rank,
        report.pid,
        report.host,
        report.interface,
        report.address,
        versions,
        report.config_digest[:12],
    )
