"""Steps that overlap change nothing: random traffic through two real engines, with and without, to the last bit."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qanat.config.prefix_cache import PrefixCacheSettings
from qanat.config.speculative import SpeculativeSettings
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.core.structured_outputs import StructuredOutputsParams
from qanat.engine.sync_engine import SyncEngine
from tests.support.providers import best_kernels as best_kernels
from tests.worker.tiny_model import tiny_config

FORM = StructuredOutputsParams(regex="(A|BC|7){2,9}")
NAMES = itertools.count()
SPECULATION = {
    "plain": SpeculativeSettings(),
    "ngram": SpeculativeSettings("ngram", 3, is_adaptive=False, prompt_lookup_min=1, prompt_lookup_max=2),
}


@dataclass(frozen=True)
class Arrival:
    """A request, which comes after so many events of others; after so many of its own it is preempted or aborted."""

    after: int
    prompt: tuple[int, ...]
    sampling: SamplingParams
    preempt_after: int | None = None
    abort_after: int | None = None


Answer = tuple[list[int], list[str], str]
Pair = tuple[SyncEngine, SyncEngine]


@pytest.fixture(scope="module", params=list(SPECULATION))
def engines(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The same engine twice: in so small a cache that requests preempt each other."""
    made = []
    for is_overlapped in (False, True):
        limits = {
            "max_model_len": 128,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 48,
            "is_overlapped": is_overlapped,
        }
        speculative = SPECULATION[request.param]
        num_held = 1 + speculative.num_tokens if speculative.method else 0
        config = tiny_config(cache={"num_blocks_override": 11, "num_held_rows": num_held}, **limits)
        config = dataclasses.replace(config, speculative=speculative, prefix_cache=PrefixCacheSettings())
        made.append(SyncEngine(config))
    yield made[0], made[1]
    for engine in made:
        engine.shutdown()


def samplings() -> st.SearchStrategy[SamplingParams]:
    """Whatever looks at the tokens before, or may end the output."""
    none = st.none()
    return st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.0, 1.0]),
        seed=st.integers(0, 3),
        max_tokens=st.integers(1, 40),
        min_tokens=st.sampled_from([0, 0, 1]),
        n=st.sampled_from([1, 1, 2]),
        repetition_penalty=st.sampled_from([1.0, 1.8]),
        presence_penalty=st.sampled_from([0.0, 0.7]),
        logprobs=st.one_of(none, st.integers(0, 2)),
        prompt_logprobs=st.one_of(none, none, st.integers(0, 1)),
        stop_token_ids=st.lists(st.integers(0, 95), max_size=20),
        stop=st.sampled_from([[], ["A"], ["7"]]),
        bad_words=st.sampled_from([[], ["A"]]),
        structured_outputs=st.one_of(none, none, st.just(FORM)),
    )


def arrivals() -> st.SearchStrategy[Arrival]:
    """Prompts repeat each other's beginnings, so that some are hits; some end with a block."""
    prompts = st.builds(
        lambda family, size: tuple((family + 5 * place % 7) % 90 for place in range(size)),
        st.integers(0, 1),
        st.sampled_from([1, 9, 16, 33, 64, 70]),
    )
    rarely = st.one_of(st.none(), st.none(), st.integers(0, 12))
    return st.builds(Arrival, st.integers(0, 20), prompts, samplings(), rarely, rarely)


def serve(engine: SyncEngine, traffic: list[Arrival]) -> dict[str, Answer]:
    """What each choice got: tokens, log-probabilities to the last bit, and why it ended."""
    tokens: dict[str, list[int]] = defaultdict(list)
    scores: dict[str, list[str]] = defaultdict(list)
    ends: dict[str, str] = {}
    pending = sorted(enumerate(traffic), key=lambda pair: pair[1].after)
    batch_name, num_events = next(NAMES), 0
    while pending:
        num_events = max(num_events, pending[0][1].after)
        add_due(engine, pending, num_events, batch_name)
        for owner, event in engine.run():
            num_events += 1
            name = f"{owner.split('.')[1]}-{event.index}"
            tokens[name] += event.token_ids
            scores[name] += [repr(one) for one in [*(event.logprobs or []), *(event.prompt_logprobs or [])]]
            if event.finish_reason is not None:
                assert name not in ends
                ends[name] = repr((event.finish_reason, event.stop_reason))
            arrival = traffic[int(owner.split(".")[1])]
            if len(tokens[name]) == arrival.preempt_after:
                engine._core._scheduler.preempt(owner)
            if arrival.abort_after is not None and len(tokens[name]) >= arrival.abort_after:
                engine._core.abort(owner)
            add_due(engine, pending, num_events, batch_name)
    return {name: (tokens[name], scores[name], ends[name]) for name in ends}


def add_due(engine: SyncEngine, pending: list[tuple[int, Arrival]], num_events: int, batch_name: int) -> None:
    while pending and pending[0][1].after <= num_events:
        index, arrival = pending.pop(0)
        engine.add(f"{batch_name}.{index}", list(arrival.prompt), arrival.sampling)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traffic=st.lists(arrivals(), min_size=1, max_size=7))
def test_overlapped_steps_give_the_same_tokens_and_log_probabilities(
    engines: Pair, traffic: list[Arrival]
) -> None:
    plain, overlapped = (serve(engine, traffic) for engine in engines)
    assert set(plain) == set(overlapped)
    for name, (tokens, scores, end) in plain.items():
        other_tokens, other_scores, other_end = overlapped[name]
        if FinishReason.ABORT.name in end + other_end:  # it may come a step earlier or later
            size = min(len(tokens), len(other_tokens))
            assert tokens[:size] == other_tokens[:size]
        else:
            assert (tokens, scores, end) == (other_tokens, other_scores, other_end), traffic[int(name[0])]


@pytest.mark.parametrize("fields", [{"repetition_penalty": 1.8}, {"min_tokens": 20}, {"bad_words": ["A"]}])
def test_eng_017_what_looks_at_tokens_before_sees_the_newest(engines: Pair, fields: dict[str, Any]) -> None:
    """The trial case: a prompt that repeats itself, greedily, for as long as it likes."""
    sampling = SamplingParams(temperature=0.0, max_tokens=64, ignore_eos=True, logprobs=1, **fields)
    arrival = Arrival(0, (65, 32) * 4, sampling)
    plain, overlapped = (serve(engine, [arrival]) for engine in engines)
    assert plain == overlapped and len(plain["0-0"][0]) == 64
