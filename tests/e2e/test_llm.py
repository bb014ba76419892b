"""Offline generation through the public names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qanat import LLM, SamplingParams, StructuredOutputsParams
from qanat.core.errors import (
    CheckpointError,
    ConfigError,
    ContextLengthError,
    InvalidRequestError,
    StructuredOutputError,
)

OPTIONS = {"max_model_len": 2048, "max_num_seqs": 4, "num_threads": 1}


@pytest.fixture(scope="module")
def llm(demo_model: Path) -> Iterator[LLM]:
    with LLM(str(demo_model), **OPTIONS) as model:
        yield model


def test_generate_takes_texts_and_token_ids(llm: LLM) -> None:
    params = SamplingParams(max_tokens=8, temperature=0)
    by_text = llm.generate("What is 2 + 3?", params)[0]
    by_ids = llm.generate(by_text.prompt_token_ids, params)[0]
    assert by_text.outputs[0].token_ids == by_ids.outputs[0].token_ids
    assert (by_text.prompt, by_ids.prompt) == ("What is 2 + 3?", None)


def test_results_keep_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"{i} plus {i} is" for i in range(9)]
    params = SamplingParams(max_tokens=6, temperature=0)
    together = llm.generate(prompts, params)
    assert [result.prompt for result in together] == prompts
    alone = [llm.generate(prompt, params)[0].outputs[0].text for prompt in prompts]
    assert [result.outputs[0].text for result in together] == alone


def test_chat_answers(llm: LLM) -> None:
    conversation = [{"role": "user", "content": "What is 2 + 3?"}]
    result = llm.chat(conversation, SamplingParams(max_tokens=200, temperature=0))[0]
    assert "5" in result.outputs[0].text
    quick = llm.chat(
        [conversation, conversation],
        SamplingParams(max_tokens=60, temperature=0),
        chat_template_kwargs={"enable_thinking": False},
    )
    assert quick[0].outputs[0].text == quick[1].outputs[0].text


def test_an_int8_cache_answers_too(demo_model: Path) -> None:
    params = SamplingParams(max_tokens=200, temperature=0)
    conversation = [{"role": "user", "content": "What is 12 + 30?"}]
    with LLM(str(demo_model), **OPTIONS, kv_cache_dtype="int8") as model:
        assert "42" in model.chat(conversation, params)[0].outputs[0].text


def test_answers_have_the_form_that_is_asked_for(llm: LLM) -> None:
    sums = {"type": "object", "properties": {"sum": {"type": "integer", "maximum": 999}}, "required": ["sum"]}
    form = StructuredOutputsParams(json=sums | {"additionalProperties": False})
    params = SamplingParams(max_tokens=400, temperature=0, structured_outputs=form)
    completed = llm.generate(["What is 2 + 3?", "What is 4 + 4?"], params)
    for result in completed:
        assert list(json.loads(result.outputs[0].text)) == ["sum"]
        assert result.outputs[0].finish_reason == "stop"
    choice = StructuredOutputsParams(choice=["five", "six"])
    conversation = [{"role": "user", "content": "What is 2 + 3?"}]
    thoughtful, quick = (
        llm.chat(
            conversation,
            SamplingParams(max_tokens=600, temperature=0, structured_outputs=choice),
            chat_template_kwargs={"enable_thinking": is_thinking},
        )[0].outputs[0]
        for is_thinking in (True, False)
    )
    assert quick.text in ("five", "six")
    assert thoughtful.finish_reason == "length" or thoughtful.text.endswith(("five", "six"))
    with pytest.raises(StructuredOutputError):
        wrong = StructuredOutputsParams(regex="(")
        llm.generate("x", SamplingParams(structured_outputs=wrong))


def test_choices_differ_and_a_seed_repeats_them(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=5, temperature=4.0, max_tokens=24, ignore_eos=True)
    first, second = (llm.generate("Hello", params)[0] for _ in range(2))
    texts = [output.token_ids for output in first.outputs]
    assert texts == [output.token_ids for output in second.outputs]
    assert len({tuple(ids) for ids in texts}) == 3


def test_errors_leave_the_model_usable(llm: LLM) -> None:
    with pytest.raises(ContextLengthError):
        llm.generate([[1] * 4000, [1]])
    with pytest.raises(InvalidRequestError):
        llm.generate(["a", "b"], [SamplingParams()])
    assert llm.generate("a", SamplingParams(max_tokens=2))[0].outputs[0].finish_reason in ("length", "stop")


def test_bad_options_are_named() -> None:
    with pytest.raises(ConfigError, match="max_model_len|max-model-len"):
        LLM(None, max_model_length=5)
    with pytest.raises((CheckpointError, ConfigError), match="nowhere"):
        LLM("/nowhere")


def test_defaults_are_those_of_the_checkpoint(demo_model: Path) -> None:
    options = {**OPTIONS, "override_generation_config": {"temperature": 0.0, "top_k": 7}}
    with LLM(str(demo_model), **options) as model:
        defaults = model.get_default_sampling_params()
        assert (defaults.temperature, defaults.top_k) == (0.0, 7)
        assert any(decision.field == "top_k" for decision in model.decisions)
        first, second = (model.generate("Hello")[0].outputs[0].token_ids for _ in range(2))
        assert first == second


@pytest.mark.parametrize(
    "option", [{"chat_template": "{{ broken"}, {"override_generation_config": {"temprature": 1}}]
)
def test_wrong_defaults_are_refused_before_anything_is_loaded(
    demo_model: Path, tmp_path: Path, option: dict[str, Any]
) -> None:
    shutil.copy(demo_model / "config.json", tmp_path)  # there are no weights to be missed
    with pytest.raises(ConfigError):
        LLM(str(tmp_path), **OPTIONS, **option)


def test_it_is_one_replica_and_says_so(demo_model: Path) -> None:
    with LLM(str(demo_model), **OPTIONS, data_parallel_size=2) as model:
        (decision,) = [one for one in model.decisions if one.field == "--data-parallel-size"]
        assert (decision.wanted, decision.got) == (2, 1) and "AsyncEngine" in decision.why
        assert model.generate("Hello", SamplingParams(max_tokens=2))[0].outputs[0].token_ids
