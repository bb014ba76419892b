"""Starts and ends profiles, and has their files written beside the steps."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar

from qanat.config.profiler import ProfilerSettings
from qanat.core.batch import ScheduledBatch
from qanat.core.errors import ProfilerStateError, ProfileWriteError, QanatError
from qanat.core.profile import ProfileReport
from qanat.worker.profile_files import ProfileFiles
from qanat.worker.recording import Recording

logger = logging.getLogger(__name__)

T = TypeVar("T")

OnReport = Callable[[ProfileReport | QanatError], None]
"""Told of a profile's files, or why there are none; from another thread than the one that computes."""


class Profiler:
    """One profile at a time. All methods are for the thread that computes.

    Args:
        settings: None if profiling is switched off.
        clock: monotonic seconds.
        rank: named by the files; None if one rank has the whole model.

    Attributes:
        is_running: steps are to be run through `run`; else they cost nothing more than this question.
    """

    def __init__(
        self,
        settings: ProfilerSettings | None,
        clock: Callable[[], float] = time.monotonic,
        rank: int | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._rank = rank
        self._recording: Recording | None = None
        self._files: ProfileFiles | None = None
        self._start_s = 0.0
        self._report: Future[ProfileReport] | None = None
        self._writing: Future[ProfileReport] | None = None
        self.is_running = False

    def start(self) -> None:
        """Records from the next step on.

        Raises:
            ProfilerStateError: a profile is recorded or written already, or profiling is switched off.
            ProfileWriteError: the folder cannot be written to.
        """
        if self._settings is None:
            raise ProfilerStateError("Profiling is switched off (--profiler-config).")
        if self.is_running:
            raise ProfilerStateError("A profile is being recorded already; end it with /stop_profile.")
        if self._writing is not None and not self._writing.done():
            raise ProfilerStateError("The files of the profile before are still being written; try again.")
        self._files = ProfileFiles(self._settings.folder, self._settings.is_compressed, self._rank)
        self._recording, self._report, self._start_s = Recording(self._settings), None, self._clock()
        self.is_running = True
        logger.info("A profile (%s) begins.", ", ".join(self._settings.kinds))

    def run(self, batch: ScheduledBatch, compute: Callable[[ScheduledBatch], T]) -> T:
        """Computes a step and records it; ends the profile if it has reached a bound.

        A profiler that fails ends the profile, never the step.
        """
        recording = self._recording
        assert recording is not None
        try:
            recording.begin_step(batch.step_id)
        except Exception as error:
            self._abandon(error)
            return compute(batch)
        try:
            return compute(batch)
        finally:
            self._after_step(recording, batch)

    def _after_step(self, recording: Recording, batch: ScheduledBatch) -> None:
        try:
            recording.end_step(batch)
            bound = recording.bound_reached
        except Exception as error:
            self._abandon(error)
        else:
            if bound:
                self._end(bound)

    def end_overdue(self) -> None:
        """Ends a profile that has run for long enough; to be called from time to time while `is_running`."""
        assert self._settings is not None
        if self.is_running and self._clock() - self._start_s >= self._settings.max_duration_s:
            self._end("max_duration_s")

    def stop(self, on_report: OnReport) -> None:
        """Ends the profile; of one that has ended by itself, hands over the report.

        Args:
            on_report: called once, when the files are written.

        Raises:
            ProfilerStateError: there is no profile.
        """
        if self.is_running:
            self._end("request")
        if self._report is None:
            raise ProfilerStateError("No profile is being recorded; start one with /start_profile.")
        report, self._report = self._report, None
        report.add_done_callback(lambda done: on_report(_outcome(done)))

    def _end(self, ended_by: str) -> None:
        """Ends the recording, which takes as long as torch sorts its events; then a thread writes."""
        recording, files = self._recording, self._files
        assert recording is not None and files is not None
        self.is_running, self._recording, self._files = False, None, None
        duration_s = self._clock() - self._start_s
        try:
            outcome = recording.end()
        except Exception as error:
            self._abandon(error, recording)
            return
        self._report = self._writing = report = Future()
        figures = ProfileReport(
            [], recording.num_steps, recording.num_op_calls, round(duration_s, 6), ended_by
        )
        threading.Thread(
            target=_write, args=(files, outcome, figures, report), name="profile-writer", daemon=True
        ).start()

    def _abandon(self, error: Exception, recording: Recording | None = None) -> None:
        """Whatever the profiler ran into, requests go on; whoever ends the profile is told."""
        logger.error("The profile could not be recorded.", exc_info=error)
        recording = recording or self._recording
        assert recording is not None
        recording.abandon()
        self.is_running, self._recording, self._files = False, None, None
        self._report = self._writing = report = Future()
        report.set_exception(ProfileWriteError(f"The profile could not be recorded: {error}"))


def _write(
    files: ProfileFiles,
    outcome: Mapping[str, Callable[[str], None] | Iterator[bytes]],
    figures: ProfileReport,
    report: Future[ProfileReport],
) -> None:
    try:
        for kind, content in outcome.items():
            path = files.write_by_name(kind, content) if callable(content) else files.write(kind, content)
            figures.files.append(path)
    except Exception as error:
        logger.error("The profile was not written: %s", error)
        report.set_exception(error)
        return
    logger.info(
        "The profile ended (%s): %d steps; %s", figures.ended_by, figures.num_steps, " ".join(figures.files)
    )
    report.set_result(figures)


def _outcome(done: Future[ProfileReport]) -> ProfileReport | QanatError:
    error = done.exception()
    if error is None:
        return done.result()
    return (
        error
        if isinstance(error, QanatError)
        else ProfileWriteError(f"The profile was not written: {error}.")
    )
