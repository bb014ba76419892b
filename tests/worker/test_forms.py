"""Rows that are held to a form: what they choose, what their neighbours do not notice, how they end."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.batch import NewRow
from qanat.core.constraint import Constraint, Thinking
from qanat.core.errors import IntegrityError, InvalidRequestError, StructuredOutputError
from qanat.core.sampling_params import SamplingParams
from qanat.worker.row_form import FormBuffer
from qanat.worker.row_state import FormMaker, RowState
from qanat.worker.sampler import NO_TOKEN, sample_tokens
from tests.support.small_vocabulary import (
    END_THINK,
    EOS,
    NEWLINE,
    THINK,
    TOKENS,
    constraint_of,
    ids_of,
    new_factory,
    text_of,
)
from tests.worker.driver import Driver, random_prompt

FACTORY = new_factory()
FORMS = FormMaker(FACTORY, FormBuffer(len(TOKENS)))
PLACES = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": ["x", "yz"]}}},
    "required": ["a", "b"],
}


def row(
    constraint: Constraint | None = None, output: list[int] | None = None, *, seed: int = 0, **sampling: Any
) -> RowState:
    token_ids = [1, *(output or [])]
    params = SamplingParams(**({"max_tokens": 999} | sampling))
    new_row = NewRow(0, "r", token_ids, 1, 0, params, seed, 0, [EOS], [], 0, constraint)
    return RowState(new_row, len(TOKENS), FORMS)


def allowed(constraint: Constraint, output: list[int]) -> list[int]:
    """Tokens that the form allows after this output."""
    matcher = FACTORY.matcher(constraint)
    for token_id in output:
        matcher.consume(token_id)
    words = np.zeros(3, dtype=np.int32)
    if not matcher.fill_mask(words):
        return list(range(len(TOKENS)))
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()


def logits_of(seed: int, num_rows: int = 1) -> torch.Tensor:
    return torch.randn(num_rows, len(TOKENS), generator=torch.Generator().manual_seed(seed)) * 4


def write(constraint: Constraint, make_logits: Callable[[int], torch.Tensor], **sampling: Any) -> list[int]:
    """An output up to its end, token by token."""
    state = row(constraint, **sampling)
    output: list[int] = []
    while EOS not in output:
        assert len(output) < 2000
        (token_id,) = sample_tokens(make_logits(len(output)), [state])
        assert token_id != NO_TOKEN, state.form and state.form.error
        state.append([token_id])
        output.append(token_id)
    return output[:-1]


@given(st.integers(1, 200), st.data())
def test_a_mask_forbids_exactly_the_tokens_whose_bit_is_clear(num_tokens: int, data: st.DataObject) -> None:
    buffer = FormBuffer(num_tokens)
    bits = data.draw(st.lists(st.booleans(), min_size=num_tokens, max_size=num_tokens))
    packed = np.packbits(np.array(bits + [True] * (-num_tokens % 32)), bitorder="little")
    buffer.words[:] = packed.view(np.int32)
    logits = torch.randn(num_tokens)
    masked = logits.clone()
    buffer.mask(masked)
    assert masked.tolist() == [x if ok else -math.inf for x, ok in zip(logits.tolist(), bits, strict=True)]


SAMPLINGS = st.fixed_dictionaries(
    {"temperature": st.sampled_from([0.0, 0.7, 2.0])},
    optional={
        "top_k": st.integers(1, 8),
        "top_p": st.sampled_from([0.3, 0.9]),
        "repetition_penalty": st.sampled_from([0.8, 1.3]),
        "frequency_penalty": st.just(0.5),
        "logit_bias": st.just({5: 3.0, 60: -2.0}),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), SAMPLINGS, st.integers(0, 12))
def test_the_choice_is_that_among_allowed_tokens_with_the_same_noise(
    seed: int, sampling: dict[str, Any], num_before: int
) -> None:
    constraint = constraint_of(json=PLACES)
    output = ids_of('{"a": 12, "b": ["x"')[:num_before]
    held = row(constraint, output, seed=seed, **sampling)
    limited = row(None, output, seed=seed, allowed_token_ids=allowed(constraint, output), **sampling)
    logits = logits_of(seed)
    assert sample_tokens(logits, [held]) == sample_tokens(logits, [limited])
    assert logits.equal(logits_of(seed)), "the scores that are reported stay as they were"


def schemas(depth: int = 2) -> st.SearchStrategy[tuple[dict[str, Any], Callable[[Any], bool]]]:
    """Schemas whose texts are short, and what tells whether a value fits them."""
    leaves: list[st.SearchStrategy[Any]] = [
        st.just(({"type": "boolean"}, lambda v: isinstance(v, bool))),
        st.just(({"type": "null"}, lambda v: v is None)),
        st.tuples(st.integers(-99, 0), st.integers(1, 99)).map(
            lambda b: (
                {"type": "integer", "minimum": b[0], "maximum": b[1]},
                lambda v: isinstance(v, int) and not isinstance(v, bool) and b[0] <= v <= b[1],
            )
        ),
        st.integers(0, 4).map(
            lambda n: (
                {"type": "string", "maxLength": n},
                lambda v: isinstance(v, str) and len(v) <= n,
            )
        ),
        st.lists(st.sampled_from(["x", "y", 1, None, True]), min_size=1, unique_by=repr).map(
            lambda values: ({"enum": values}, lambda v: any(repr(v) == repr(one) for one in values))
        ),
    ]
    if depth == 0:
        return st.one_of(leaves)
    inner = schemas(depth - 1)
    arrays = st.tuples(inner, st.integers(0, 2)).map(
        lambda pair: (
            {"type": "array", "items": pair[0][0], "minItems": pair[1], "maxItems": 2},
            lambda v: isinstance(v, list) and pair[1] <= len(v) <= 2 and all(map(pair[0][1], v)),
        )
    )
    objects = st.dictionaries(st.sampled_from(["p", "q", "long name"]), inner, max_size=3).map(
        lambda fields: (
            {
                "type": "object",
                "properties": {name: schema for name, (schema, _) in fields.items()},
                "required": list(fields),
                "additionalProperties": False,
            },
            lambda v: (
                isinstance(v, dict)
                and set(v) == set(fields)
                and all(fits(v[name]) for name, (_, fits) in fields.items())
            ),
        )
    )
    return st.one_of(*leaves, arrays, objects)


@settings(max_examples=40, deadline=None)
@given(schemas(), st.integers(0, 1000), st.sampled_from([0.0, 1.0]))
def test_whatever_the_model_would_say_the_whole_output_fits_the_schema(
    case: tuple[dict[str, Any], Callable[[Any], bool]], seed: int, temperature: float
) -> None:
    schema, fits = case
    constraint = constraint_of(json=schema)
    output = write(constraint, lambda i: logits_of(seed + i), temperature=temperature, seed=seed)
    assert fits(json.loads(text_of(output)))


SHORT = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 99},
        "b": {"type": "array", "items": {"enum": ["x", "y"]}, "maxItems": 3},
    },
    "required": ["a", "b"],
    "additionalProperties": False,
}
"""What ends whatever is drawn."""


@pytest.mark.parametrize("form", [{"json_object": True}, {"json": SHORT}])
def test_api_058_blanks_between_the_parts_of_a_json_text_are_bounded(form: dict[str, Any]) -> None:
    """Spaces and line ends have most of the probability wherever the form allows them."""
    liked = torch.zeros(1, len(TOKENS))
    liked[0, [0, NEWLINE]] = 9.0
    state = row(constraint_of(**form), temperature=1.0, seed=3)
    output: list[int] = []
    while EOS not in output and len(output) < 1500:
        (token_id,) = sample_tokens(liked + logits_of(len(output)) / 4, [state])
        state.append([token_id])
        output.append(token_id)
    text = text_of(output).removesuffix("<eos>")
    runs = re.findall(r"\s+", re.sub(r'"(\\.|[^"\\])*("|$)', "S", text))
    assert runs and max(map(len, runs)) <= 32
    if "json" in form:
        assert output[-1] == EOS and text.endswith("}")


@pytest.mark.parametrize(
    "edits", [{"min_tokens": 50}, {"allowed_token_ids": ids_of("ok")}, {"bad_words": []}]
)
def test_at_the_end_of_the_form_the_output_ends_whatever_else_was_asked_for(edits: dict[str, Any]) -> None:
    output = write(constraint_of(choice=["ok"]), logits_of, temperature=0.0, **edits)
    assert text_of(output) == "ok"


def test_min_tokens_holds_while_the_form_can_go_on() -> None:
    loves_the_end = torch.zeros(1, len(TOKENS))
    loves_the_end[0, EOS] = 9.0
    output = write(constraint_of(regex="a+"), lambda i: loves_the_end, temperature=0.0, min_tokens=7)
    assert text_of(output) == "a" * 7


def test_edits_that_leave_nothing_of_the_form_end_the_row_only() -> None:
    held = row(constraint_of(choice=["ok"]), allowed_token_ids=ids_of("x"), temperature=0.0)
    free = row(temperature=0.0)
    logits = logits_of(1, 2)
    assert sample_tokens(logits, [held, free]) == [NO_TOKEN, int(logits[1].argmax())]


def test_thoughts_are_free_and_the_form_follows_them() -> None:
    constraint = constraint_of(Thinking.OPEN, choice=["ok"])
    wanted = [*ids_of("hmm"), EOS, END_THINK, NEWLINE, *ids_of("no")]

    def speech(position: int) -> torch.Tensor:
        logits = torch.zeros(1, len(TOKENS))
        logits[0, wanted[min(position, len(wanted) - 1)]] = 9.0
        if position == 3:  # the end of the output is what it wants most inside its thoughts
            logits[0, THINK] = 5.0
        return logits

    output = write(constraint, speech, temperature=0.0)
    assert text_of(output) == "hmm<think></think>\nok"


def said_beside(num_steps: int, constraint: Constraint | None) -> tuple[list[int], list[list[float]]]:
    """Output and scores of two plain rows beside a third one, which has a form or not."""
    driver = Driver(matcher_factory=new_factory())
    driver.add("plain", random_prompt(9, 1), temperature=0.8, seed=5, logprobs=3)
    driver.add("neighbour", random_prompt(5, 3), constraint=constraint, stop_token_ids=[EOS])
    driver.add("greedy", random_prompt(17, 2), logprobs=3)
    for _ in range(num_steps):
        driver.step_all()
    tokens = [*driver.running["plain"].output, *driver.running["greedy"].output]
    scores = [
        output.logprobs[0].logprobs for name in ("plain", "greedy") for output in driver.running[name].outputs
    ]
    return tokens, scores


def test_a_neighbour_with_a_form_changes_no_bit_of_the_others() -> None:
    endless = constraint_of(json={"type": "array", "items": {"type": "integer"}, "minItems": 99})
    assert said_beside(12, endless) == said_beside(12, None)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 9, "logprobs": 2}])
def test_an_output_that_is_continued_goes_on_as_if_nothing_had_been(sampling: dict[str, Any]) -> None:
    constraint = constraint_of(json={"type": "array", "items": PLACES, "minItems": 3})
    whole = Driver(matcher_factory=new_factory())
    whole.add("r", random_prompt(9, 1), constraint=constraint, stop_token_ids=[EOS], **sampling)
    expected = whole.generate("r", 40)
    for cut in (1, 7, 23):
        parts = Driver(matcher_factory=new_factory())
        parts.add(
            "r", random_prompt(9, 1), expected[:cut], constraint=constraint, stop_token_ids=[EOS], **sampling
        )
        assert parts.generate("r", 40) == expected


def test_prior_output_outside_the_form_ends_that_request_with_a_reason() -> None:
    driver = Driver(matcher_factory=new_factory())
    driver.add("wrong", [4], ids_of("no"), constraint=constraint_of(choice=["ok"]))
    driver.add("right", [4], ids_of("o"), constraint=constraint_of(choice=["ok"]), stop_token_ids=[EOS])
    answers = driver.step_all()
    assert answers["wrong"].error_code == StructuredOutputError.code and answers["wrong"].error
    assert answers["wrong"].token_ids == []
    assert answers["right"].token_ids == ids_of("k")


def test_a_form_that_cannot_be_compiled_here_ends_that_request_only() -> None:
    driver = Driver(matcher_factory=new_factory())
    driver.add("broken", [4, 5], constraint=Constraint("guidance", "start: undefined_rule"))
    driver.add("plain", [4, 5])
    answers = driver.step_all()
    assert answers["broken"].error_code == StructuredOutputError.code
    assert answers["plain"].token_ids


def test_edits_that_exclude_the_form_are_named_with_it() -> None:
    driver = Driver(matcher_factory=new_factory())
    driver.add("r", [4], constraint=constraint_of(choice=["ok"]), allowed_token_ids=ids_of("x"))
    answer = driver.step_all()["r"]
    assert answer.error_code == InvalidRequestError.code and "form" in answer.error


def test_a_worker_without_a_factory_says_that_it_was_put_together_wrongly() -> None:
    driver = Driver()
    driver.add("r", [4], constraint=constraint_of(choice=["ok"]))
    with pytest.raises(IntegrityError):
        driver.step_all()
