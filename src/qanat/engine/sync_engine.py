"""The engine in the calling thread, for offline work: no processes, no sockets, the same loop."""

from __future__ import annotations

import dataclasses
import queue
import sys
from collections.abc import Iterator, Sequence

from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import Thinking
from qanat.core.decision import Decision
from qanat.core.errors import QanatError
from qanat.core.events import GenerationEvent
from qanat.core.profile import ProfileReport
from qanat.core.sampling_params import SamplingParams
from qanat.engine.admission import Admission
from qanat.engine.assembly import build_core
from qanat.engine.constraints import ConstraintMaker, VocabularyPacker, vocabulary_of
from qanat.engine.continuation import PriorOutput
from qanat.engine.output_processor import OutputProcessor
from qanat.engine.tokenizer import load_tokenizer
from qanat.scheduler.stats import SchedulerStats
from qanat.structured.blocking_compiler import BlockingCompiler
from qanat.structured.factory import FormFactory

FORM_WAIT_S = 1.0


class SyncEngine:
    """Queues prompts and runs the loop until all are done. Not thread-safe.

    Raises:
        CheckpointError: the model folder cannot be served.
        CapacityError: weights or cache do not fit.
    """

    def __init__(self, config: ResolvedConfig, decisions: Sequence[Decision] = ()) -> None:
        self.tokenizer, config = load_tokenizer(config)
        # A caller who waits for all of his prompts has no use for a bound on how many may wait.
        limits = dataclasses.replace(
            config.scheduler, max_waiting_requests=sys.maxsize, max_waiting_tokens=sys.maxsize
        )
        forms = FormFactory(lambda: vocabulary_of(self.tokenizer, self.config))
        self._core, ready = build_core(dataclasses.replace(config, scheduler=limits), forms)
        self.config = ready.config
        self.decisions = [*decisions, *ready.decisions]
        self.memory_plan = ready.memory_plan
        self._admission = Admission(self.config, self.tokenizer, self.memory_plan.max_cached_tokens)
        vocabulary = VocabularyPacker(self.tokenizer, self.config)
        self._constraints = ConstraintMaker(self.tokenizer, self.config, vocabulary)
        self._compiler = BlockingCompiler(self.config.structured, vocabulary.packed)
        self._processors: dict[str, OutputProcessor] = {}
        self._owners: dict[str, str] = {}

    def add(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        *,
        priority: int = 0,
        thinking: Thinking = Thinking.NONE,
        boundaries: Sequence[int] = (),
        output_token_ids: PriorOutput = (),
    ) -> None:
        """Queues a prompt.

        Args:
            request_id: unique among those that are queued.
            prompt_token_ids: the prompt.
            sampling: how tokens are chosen.
            priority: lower runs first under the priority policy.
            thinking: whether the output begins with reasoning, which a form leaves free.
            boundaries: positions in the prompt at which later prompts are likely to part from it.
            output_token_ids: what each choice has brought forth elsewhere; events tell what comes after it.

        Raises:
            InvalidRequestError, ContextLengthError: it cannot be served; nothing is queued.
            StructuredOutputError: the form cannot be compiled.
        """
        requests = self._admission.requests(
            prompt_token_ids,
            sampling,
            request_id=request_id,
            priority=priority,
            boundaries=boundaries,
            output_token_ids=output_token_ids,
        )
        constraint = None
        if sampling.structured_outputs is not None:
            grammar = self._compiler.compile(sampling.structured_outputs)
            constraint = self._constraints.constraint(grammar, thinking)
        for request in requests:
            request.constraint = constraint
            self._processors[request.request_id] = OutputProcessor(self.tokenizer, request)
            self._owners[request.request_id] = request_id
            self._core.add(request)

    def run(self) -> Iterator[tuple[str, GenerationEvent]]:
        """Steps until every queued prompt is done; yields each event with the id given to `add`."""
        while self.has_work:
            if not self._core.has_work:
                self._core.await_forms(FORM_WAIT_S)
            self._core.end_overdue_profile()
            yield from self.step()

    @property
    def has_work(self) -> bool:
        """True while any queued prompt is not done."""
        return self._core.has_work or self._core.is_preparing

    def step(self) -> Iterator[tuple[str, GenerationEvent]]:
        """One step of the loop; yields each event with the id given to `add`."""
        for output in self._core.step():
            processor = self._processors.get(output.request_id)
            if processor is None:
                continue
            step = processor.process(output)
            owner = self._owners[output.request_id]
            if step.must_abort:
                self._core.abort(output.request_id)
            if step.event.finish_reason is not None:
                del self._processors[output.request_id], self._owners[output.request_id]
            yield owner, step.event

    def abort(self, request_id: str) -> None:
        """Ends all choices of a prompt; the next step yields their last events. Unknown ids are ignored."""
        for choice_id, owner in self._owners.items():
            if owner == request_id:
                self._core.abort(choice_id)

    def stats(self) -> SchedulerStats:
        """Counters and gauges of the scheduler."""
        return self._core.stats()

    def reset_prefix_cache(self) -> None:
        """Forgets all cached prefixes, on disk too; nothing may be queued.

        Raises:
            PrefixesInUseError: something is.
        """
        self._core.reset_prefixes()

    def start_profile(self) -> None:
        """Records steps from the next one on, as --profiler-config says.

        Raises:
            ProfilerStateError: one is recorded or written already, or profiling is switched off.
            ProfileWriteError: the folder cannot be written to.
        """
        self._core.start_profile()

    def stop_profile(self) -> ProfileReport:
        """Ends the profile and waits for its files; of one that ended by itself, what became of it.

        Raises:
            ProfilerStateError: there is no profile.
            ProfileWriteError: its files could not be written.
        """
        outcomes: queue.SimpleQueue[ProfileReport | QanatError] = queue.SimpleQueue()
        self._core.stop_profile(outcomes.put)
        outcome = outcomes.get()
        if isinstance(outcome, QanatError):
            raise outcome
        return outcome

    def abort_all(self) -> None:
        """Ends everything that is queued or running."""
        for request_id in list(self._processors):
            self._core.abort(request_id)
        self._processors.clear()
        self._owners.clear()
        while self._core.has_work:
            self._core.step()

    def shutdown(self) -> None:
        """Releases model and cache."""
        self.abort_all()
        self._compiler.shutdown()
        self._core.shutdown()
