from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qanat.core.batch import NewRow
from qanat.core.sampling_params import SamplingParams
from qanat.kernels.reference import choice
from qanat.kernels.reference.gumbel import gumbel_noise, position_key
from qanat.worker import sampler
from qanat.worker.row_state import RowState
from qanat.worker.sampler import NO_TOKEN, sample_tokens
from tests.support.providers import reference_kernels  # noqa: F401

VOCAB = 12


def brute_force_token(
    logits: np.ndarray, row: RowState, stop_token_ids: list[int], prompt: list[int], require: Any = assume
) -> int:
    """The whole rule, one token at a time; NO_TOKEN where nothing is left."""
    sampling, output = row.sampling, row.output_token_ids.tolist()
    x = [np.float32(value) for value in logits]
    for token in range(len(x)):
        if sampling.allowed_token_ids is not None and token not in sampling.allowed_token_ids:
            x[token] = np.float32(-np.inf)
    for word in sampling.bad_words_token_ids:
        if len(output) >= len(word) - 1 and output[len(output) - len(word) + 1 :] == word[:-1]:
            x[word[-1]] = np.float32(-np.inf)
    if len(output) < sampling.min_tokens:
        for token in stop_token_ids:
            x[token] = np.float32(-np.inf)
    for token, bias in (sampling.logit_bias or {}).items():
        x[token] += np.float32(bias)
    for token in range(len(x)):
        if token in prompt or token in output:
            r = np.float32(sampling.repetition_penalty)
            x[token] = x[token] / r if x[token] > 0 else x[token] * r
            x[token] -= np.float32(sampling.frequency_penalty) * np.float32(output.count(token))
            x[token] -= np.float32(sampling.presence_penalty) * np.float32(token in output)
    alive = [token for token in range(len(x)) if x[token] > -np.inf]
    if not alive:
        return NO_TOKEN
    if sampling.temperature < 1e-5:
        return min(alive, key=lambda token: (-x[token], token))
    x = [value / np.float32(sampling.temperature) for value in x]
    order = sorted(alive, key=lambda token: (-x[token], token))
    top = x[order[0]]
    if sampling.min_p > 0:
        order = [t for t in order if x[t] - top >= np.float32(math.log(sampling.min_p))]
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        weights = [math.exp(float(x[token] - top)) for token in order]
        target, before, kept = sampling.top_p * sum(weights), 0.0, 0
        for weight in weights:
            # Two orders of summation may disagree about a target that is met to the last bit.
            require(before == target or abs(before - target) > 1e-9 * target)
            if kept and before >= target:
                break
            before, kept = before + weight, kept + 1
        order = order[:kept]
    key = position_key(int(row.draw["key"][0]), row.num_tokens)
    noise = gumbel_noise([key], torch.arange(len(x)))[0].numpy()
    return min(order, key=lambda token: (-(x[token] + noise[token]), token))


tokens = st.integers(0, VOCAB - 1)
# Halves make ties frequent; the others make values that no two tokens share.
logit_rows = st.lists(
    st.one_of(st.integers(-6, 6).map(lambda n: n / 2), st.floats(-8, 8, width=32)),
    min_size=VOCAB,
    max_size=VOCAB,
)
samplings = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.7]),
        "top_k": st.integers(-1, VOCAB + 3),
        "top_p": st.floats(0.01, 1.0),
        "min_p": st.floats(0.0, 1.0),
        "repetition_penalty": st.sampled_from([0.5, 1.0, 1.3, 2.0]),
        "presence_penalty": st.sampled_from([-2.0, 0.0, 0.7]),
        "frequency_penalty": st.sampled_from([-0.5, 0.0, 1.1]),
        "logit_bias": st.dictionaries(tokens, st.sampled_from([-100.0, -1.5, 2.0, 100.0]), max_size=3),
        "allowed_token_ids": st.lists(tokens, min_size=1, max_size=6),
        "bad_words_token_ids": st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=4),
        "min_tokens": st.integers(0, 4),
    },
)
cases = st.tuples(
    logit_rows,
    samplings,
    st.lists(tokens, min_size=1, max_size=5),
    st.lists(tokens, max_size=6),
    st.lists(tokens, max_size=3),
    st.integers(-(2**63), 2**63),
)


def build(
    sampling: dict[str, Any], prompt: list[int], output: list[int], stops: list[int], seed: int
) -> RowState:
    """A row as the runner would have it: the output came token by token."""
    new_row = NewRow(
        row=0, request_id="r", token_ids=prompt, num_prompt_tokens=len(prompt), num_computed_tokens=0,
        sampling=SamplingParams(**sampling), seed=seed, choice_index=0, stop_token_ids=stops, block_ids=[], state_id=0,
    )  # fmt: skip
    row = RowState(new_row, VOCAB)
    for token in output:
        row.append([token])
    return row


@settings(max_examples=120, deadline=None)
@given(st.lists(cases, min_size=1, max_size=6))
def test_batches_agree_with_the_rule_written_out(batch: list[Any]) -> None:
    rows = [
        build(sampling, prompt, output, stops, seed) for _, sampling, prompt, output, stops, seed in batch
    ]
    logits = torch.tensor([case[0] for case in batch], dtype=torch.float32)
    expected = [
        brute_force_token(logits[i].numpy(), rows[i], case[4], case[2]) for i, case in enumerate(batch)
    ]
    assert sample_tokens(logits.clone(), rows) == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(cases, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_a_row_does_not_depend_on_its_neighbours_or_its_place(batch: list[Any], random: Any) -> None:
    def run(picked: list[int]) -> list[int]:
        rows = [build(*batch[i][1:]) for i in picked]
        return sample_tokens(torch.tensor([batch[i][0] for i in picked], dtype=torch.float32), rows)

    alone = [run([i])[0] for i in range(len(batch))]
    order = list(range(len(batch)))
    random.shuffle(order)
    assert run(order) == [alone[i] for i in order]


@settings(max_examples=40, deadline=None)
@given(st.lists(cases, min_size=1, max_size=4))
def test_output_known_at_entry_counts_like_output_produced_here(batch: list[Any]) -> None:
    for values, sampling, prompt, output, stops, seed in batch:
        grown = build(sampling, prompt, output, stops, seed)
        resumed = RowState(
            NewRow(
                row=0, request_id="r", token_ids=prompt + output, num_prompt_tokens=len(prompt),
                num_computed_tokens=0, sampling=SamplingParams(**sampling), seed=seed, choice_index=0,
                stop_token_ids=stops, block_ids=[], state_id=0,
            ),
            VOCAB,
        )  # fmt: skip
        logits = torch.tensor([values], dtype=torch.float32)
        assert sample_tokens(logits.clone(), [grown]) == sample_tokens(logits.clone(), [resumed])


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def distribution_of(make_row: Any, logits: torch.Tensor, num_draws: int, **sampling: Any) -> np.ndarray:
    counts = np.zeros(logits.shape[0])
    for start in range(0, num_draws, 500):
        rows = [make_row(prompt=[1] * (1 + i % 7), seed=start + i, **sampling) for i in range(500)]
        for token in sample_tokens(logits.expand(500, -1).clone(), rows):
            counts[token] += 1
    return counts


def test_draws_follow_the_softmax_at_the_temperature(make_row: Any) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 1.5, 0.2])
    counts = distribution_of(make_row, logits, 20_000, temperature=0.8)
    probabilities = torch.softmax(logits.double() / 0.8, 0).numpy()
    assert chi_square(counts, probabilities) < 29.9  # 7 degrees of freedom, once in 10,000


def test_filtered_draws_follow_the_renormalised_distribution(make_row: Any) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 1.5, 0.2])
    counts = distribution_of(make_row, logits, 20_000, temperature=1.0, top_k=5, top_p=0.95)
    weights = torch.softmax(logits.double(), 0)
    best_five = weights.sort(descending=True).values[:5].sum()
    needed = int((weights.sort(descending=True).values.cumsum(0) < 0.95 * best_five).sum()) + 1
    kept = weights.argsort(descending=True)[:needed]
    assert set(np.flatnonzero(counts)) == set(kept.tolist())
    probabilities = (weights[kept] / weights[kept].sum()).numpy()
    assert chi_square(counts[kept.numpy()], probabilities) < 23.6  # at most 4 degrees of freedom


def test_positions_of_one_request_draw_independently(make_row: Any) -> None:
    logits = torch.zeros(500, 4)
    joint = np.zeros((4, 4))
    for seed in range(20):
        rows = [make_row(prompt=[1] * (i + 1), seed=seed) for i in range(500)]
        drawn = sample_tokens(logits.clone(), rows)
        np.add.at(joint, (drawn[:-1], drawn[1:]), 1)
    assert chi_square(joint.ravel(), np.full(16, 1 / 16)) < 44.3


def test_choices_and_seeds_differ_and_repeat(make_row: Any) -> None:
    logits = torch.zeros(1, 1000)
    drawn = {
        (seed, choice): sample_tokens(logits.clone(), [make_row(seed=seed, choice_index=choice)])[0]
        for seed in (1, 2) for choice in range(4)
    }  # fmt: skip
    assert len(set(drawn.values())) >= 7
    again = [sample_tokens(logits.clone(), [make_row(seed=s, choice_index=c)])[0] for s, c in drawn]
    assert again == list(drawn.values())


def test_choice_index_alone_changes_the_draw(make_row: Any) -> None:
    logits = torch.zeros(64, 1000)
    first = sample_tokens(logits.clone(), [make_row(prompt=[1] * (i + 1), choice_index=0) for i in range(64)])
    second = sample_tokens(
        logits.clone(), [make_row(prompt=[1] * (i + 1), choice_index=1) for i in range(64)]
    )
    assert sum(a == b for a, b in zip(first, second, strict=True)) <= 2


def test_ties_go_to_the_lower_id(make_row: Any) -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 3.0, 2.0]])
    assert sample_tokens(logits.clone(), [make_row(temperature=0.0)]) == [1]
    assert sample_tokens(logits.clone(), [make_row(top_k=1)]) == [1]
    assert sample_tokens(logits.clone(), [make_row(top_p=0.01)]) == [1]
    seen = {sample_tokens(logits.clone(), [make_row(top_k=2, seed=seed)])[0] for seed in range(50)}
    assert seen == {1, 2}


def test_top_p_looks_further_than_its_first_guess(make_row: Any) -> None:
    # 5,000 equal tokens: 0.9 of the probability is the first 4,500 ids.
    logits = torch.zeros(1, 5000)
    drawn = [sample_tokens(logits.clone(), [make_row(top_p=0.9, seed=seed)])[0] for seed in range(400)]
    assert max(drawn) < 4500
    assert max(drawn) > 4300
    almost_flat = torch.linspace(0, 0.5, 5000)[
        torch.randperm(5000, generator=torch.Generator().manual_seed(1))
    ]
    rows = [make_row(top_p=0.8, seed=seed) for seed in range(20)]
    expected = [brute_force_token(almost_flat.numpy(), row, [], [1], bool) for row in rows]
    assert sample_tokens(almost_flat.expand(20, -1).clone(), rows) == expected


def test_large_vocabulary_is_worked_on_in_parts_with_the_same_result(
    make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.randn(9, 3000, generator=torch.Generator().manual_seed(3)) * 4
    rows = [make_row(seed=i, **({"top_p": 0.9} if i % 2 else {}), temperature=0.9) for i in range(9)]
    whole = sample_tokens(logits.clone(), rows)
    monkeypatch.setattr(sampler, "MAX_SAMPLER_ELEMENTS", 7000)
    assert sample_tokens(logits.clone(), rows) == whole


def test_very_small_temperatures_are_greedy(make_row: Any) -> None:
    logits = torch.tensor([[1e30, 0.0, -1e30, 2e30]])
    assert sample_tokens(logits.clone(), [make_row(temperature=1e-30)]) == [3]
    assert sample_tokens(torch.tensor([[5.0, 9.0, 1.0]]), [make_row(temperature=1e-5)]) == [1]


def test_minimum_length_masks_stop_tokens_until_it_is_reached(make_row: Any) -> None:
    logits = torch.tensor([[0.0, 9.0, 5.0]])
    row = make_row(stop_token_ids=[1], min_tokens=2, max_tokens=9, temperature=0.0)
    chosen = []
    for _ in range(3):
        chosen += sample_tokens(logits.clone(), [row])
        row.append(chosen[-1:])
    assert chosen == [2, 2, 1]


def test_a_bad_word_is_not_finished_and_its_parts_are_free(make_row: Any) -> None:
    logits = torch.tensor([[0.0, 1.0, 3.0, 2.0]])
    row = make_row(prompt=[2], bad_words_token_ids=[[2, 2, 2]], temperature=0.0)
    chosen = []
    for _ in range(7):
        chosen += sample_tokens(logits.clone(), [row])
        row.append(chosen[-1:])
    # The prompt's token does not count; every third repetition is kept from happening.
    assert chosen == [2, 2, 3, 2, 2, 3, 2]


def test_nothing_left_to_choose_is_reported_and_spares_neighbours(make_row: Any) -> None:
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    dead = {"allowed_token_ids": [4], "bad_words_token_ids": [[4]]}
    for temperature in (0.0, 1.0):
        rows = [make_row(seed=1), make_row(temperature=temperature, **dead), make_row(seed=3, top_k=2)]
        chosen = sample_tokens(logits.clone(), rows)
        assert chosen[1] == NO_TOKEN
        assert [chosen[0], chosen[2]] == sample_tokens(logits[[0, 2]].clone(), [rows[0], rows[2]])


def test_ids_beyond_the_valid_ones_are_ignored_everywhere(make_row: Any) -> None:
    row = make_row(
        prompt=[7], num_valid=4, allowed_token_ids=[2, 6], logit_bias={7: 5.0}, bad_words_token_ids=[[6]],
        repetition_penalty=1.5, temperature=0.0,
    )  # fmt: skip
    assert sample_tokens(torch.tensor([[0.0, 3.0, 1.0, 2.0]]), [row]) == [2]


def test_not_a_number_does_not_stop_the_batch(make_row: Any) -> None:
    # With the guard switched off a broken row yields some token; its neighbours' are right.
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    broken = logits.clone()
    broken[1] = math.nan
    for extra in ({}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.3}, {"temperature": 0.0}):
        rows = [make_row(seed=i, **extra) for i in range(3)]
        good, bad = sample_tokens(logits.clone(), rows), sample_tokens(broken.clone(), rows)
        assert [good[0], good[2]] == [bad[0], bad[2]]
        assert 0 <= bad[1] < 50


def test_equal_scores_go_to_the_lower_id_even_among_filtered_tokens(
    make_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = torch.tensor([[1.0, 5.0, 3.0, 4.0, -9.0]])

    def levelling_noise(keys: Any, token_ids: torch.Tensor) -> torch.Tensor:
        return 6.0 - logits[0][token_ids.long()].expand(len(keys), -1)

    monkeypatch.setattr(choice, "gumbel_noise", levelling_noise)
    assert sample_tokens(logits, [make_row(top_k=3)]) == [1]
    assert sample_tokens(logits, [make_row(top_k=4)]) == [0]
    assert sample_tokens(logits, [make_row()]) == [0]
