"""Calls served alone, and the same calls in company."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from qanat.engine.sync_engine import SyncEngine
from tests.matrix.answers import Answer, differences
from tests.matrix.models import BLOCK_SIZE, MAX_MODEL_LEN, open_engine
from tests.matrix.scenario import Call, Scenario, Way
from tests.matrix.spoiling import spoil
from tests.matrix.traffic import prompts_of, sampling_of

PLAINEST = Way(
    flags={
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "max_num_seqs": 1,
        "max_num_batched_tokens": MAX_MODEL_LEN,
        "num_threads": 1,
    }
)
MAX_IDLE_STEPS = 3000
FORM_WAIT_S = 30.0

Answers = list[list[Answer]]
"""By call, then by choice."""


def faults_of(scenario: Scenario, folder: Path) -> list[str]:
    """What is not as alone, in words; empty if all is well.

    Args:
        scenario: what to serve.
        folder: see `tests.matrix.models.write_folders`.
    """
    alone = serve_alone(scenario, folder)
    found = []
    for number, way in enumerate(scenario.ways):
        try:
            for start, answers in enumerate(serve_in(way, scenario, alone, folder)):
                name = f"way {number}, start {start}" if way.num_starts > 1 else f"way {number}"
                found += [f"{name}, {fault}" for fault in _differences(scenario, alone, answers)]
        except Exception as error:
            found.append(f"way {number}: {type(error).__name__}: {error}")
    return found


def serve_in(way: Way, scenario: Scenario, alone: Answers, folder: Path) -> Iterator[Answers]:
    """The answers of each engine that is started in this way."""
    with tempfile.TemporaryDirectory(prefix="qanat-prefixes-") as place:
        if way.num_starts > 1:
            way = msgspec.structs.replace(way, flags={**way.flags, "prefix_cache_dir": place})
        for _ in range(way.num_starts):
            yield Company(scenario, alone, way, folder).serve()


def _differences(scenario: Scenario, alone: Answers, answers: Answers) -> Iterator[str]:
    for index, choices in enumerate(answers):
        call = scenario.calls[index]
        num_prior = num_prior_tokens(call, alone[index])
        for choice, (wanted, got) in enumerate(zip(alone[index], choices, strict=True)):
            if not is_left_out(wanted, num_prior):
                is_spoilt = call.spoil_after is not None and choice == 0
                for fault in differences(wanted, got, num_prior, may_be_spoilt=is_spoilt):
                    yield f"call {index}, choice {choice}: {fault}"


def serve_alone(scenario: Scenario, folder: Path) -> Answers:
    """Every call for itself, in the plainest way."""
    num_blocks = MAX_MODEL_LEN // BLOCK_SIZE
    engine = open_engine(folder, scenario.weights, PLAINEST, num_blocks)
    answers: Answers = []
    try:
        for index, call in enumerate(scenario.calls):
            sampling = sampling_of(call)
            choices = [Answer() for _ in range(sampling.n)]
            engine.add(str(index), prompts_of(scenario.calls, answers, index), sampling)
            for _, event in engine.run():
                choices[event.index].take(event)
            answers.append(choices)
    finally:
        engine.shutdown()
    return answers


def num_prior_tokens(call: Call, alone: list[Answer]) -> int:
    """Output tokens that the call brings along: none if no choice is longer, or any has failed."""
    is_open = any(len(answer.token_ids) > call.num_prior for answer in alone)
    has_failed = any(answer.end is not None and answer.end[2] for answer in alone)
    return call.num_prior if is_open and not has_failed else 0


def is_left_out(alone: Answer, num_prior: int) -> bool:
    """True for a choice that had ended before the call was brought here."""
    return 0 < num_prior >= len(alone.token_ids)


class Company:
    """One run of all calls on one engine.

    Args:
        scenario: the calls and the weights.
        alone: what each gets alone: followers and resumed calls bring parts of it.
        way: how the engine serves.
        folder: of the models.

    Attributes:
        engine: what serves them.
    """

    def __init__(self, scenario: Scenario, alone: Answers, way: Way, folder: Path) -> None:
        self._calls, self._alone = scenario.calls, alone
        self._prompts = [prompts_of(scenario.calls, alone, index) for index in range(len(scenario.calls))]
        self.engine = open_engine(folder, scenario.weights, way, self._num_blocks(way))
        self.engine._core._clock = _made_up_clock(way.step_times)
        self._answers: Answers = [[Answer() for _ in choices] for choices in alone]
        self._arrived_at: dict[int, int] = {}
        self._ended_at: dict[int, int] = {}

    def serve(self) -> Answers:
        """Every call's answer; checks that nothing is owned afterwards."""
        engine = self.engine
        try:
            step = 0
            while len(self._ended_at) < len(self._calls):
                self._let_in(step)
                self._disturb(step)
                for name, event in engine.step():
                    self._answers[int(name)][event.index].take(event)
                self._note_ends(step)
                step += 1
                assert step < MAX_IDLE_STEPS, f"no end after {step} steps: {engine.stats()}"
            self._check_idle(engine)
        finally:
            engine.shutdown()
        return self._answers

    def _num_blocks(self, way: Way) -> int:
        """What the longest call needs alone, and what is to spare."""
        size = way.flags.get("block_size", BLOCK_SIZE)
        longest = max(
            len(prompt) + (call.sampling.get("max_tokens") or 16)
            for prompt, call in zip(self._prompts, self._calls, strict=True)
        )
        return -(-longest // size) + way.num_spare_blocks

    def _let_in(self, step: int) -> None:
        due = 0
        for index, call in enumerate(self._calls):
            earlier = call.followed(index)
            since = due if earlier is None else self._ended_at.get(earlier)
            if earlier is None:
                due += call.gap
            if index not in self._arrived_at and since is not None and step >= since + call.gap:
                self._add(index, step)

    def _add(self, index: int, step: int) -> None:
        call, prompt, alone = self._calls[index], self._prompts[index], self._alone[index]
        num_prior = num_prior_tokens(call, alone)
        outputs = [
            None if is_left_out(answer, num_prior) else answer.token_ids[:num_prior] for answer in alone
        ]
        self._arrived_at[index] = step
        self.engine.add(
            str(index),
            prompt,
            sampling_of(call),
            priority=call.priority,
            boundaries=[int(share * len(prompt)) for share in call.boundaries],
            output_token_ids=outputs if num_prior else (),
        )
        if self.engine._core.is_preparing:  # in which step a form is ready decides nothing
            self.engine._core.await_forms(FORM_WAIT_S)

    def _disturb(self, step: int) -> None:
        scheduler = self.engine._core._scheduler
        for index, since in self._arrived_at.items():
            call = self._calls[index]
            names = [str(index)] + [f"{index}-{choice}" for choice in range(len(self._alone[index]))]
            if call.spoil_after == step - since:
                spoil(self.engine, names[:2])
            if step - since in call.preempt_after:
                for name in names:
                    scheduler.preempt(name)
            if call.abort_after == step - since:
                self.engine.abort(str(index))

    def _note_ends(self, step: int) -> None:
        for index in self._arrived_at:
            num_prior = num_prior_tokens(self._calls[index], self._alone[index])
            pairs = zip(self._alone[index], self._answers[index], strict=True)
            if index not in self._ended_at and all(
                answer.end is not None or is_left_out(alone, num_prior) for alone, answer in pairs
            ):
                self._ended_at[index] = step

    def _check_idle(self, engine: SyncEngine) -> None:
        while engine.has_work:
            for name, event in engine.step():
                raise AssertionError(f"news of call {name} after its end: {event}")
        stats = engine.stats()
        assert stats.num_free_blocks == stats.num_usable_blocks, stats
        assert stats.num_free_states == stats.num_usable_states, stats
        engine._core._scheduler._cache.check_integrity()


def _made_up_clock(seed: int) -> Callable[[], float]:
    """A clock on which steps take anything from 1 to 50 ms: what adaptive drafts go by, the same every time."""
    chance, now_s = random.Random(seed), 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += chance.uniform(0.001, 0.05)
        return now_s

    return clock
