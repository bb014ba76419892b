"""Events of one choice: several tokens in one output mean the same as the tokens one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qanat.core.batch import TokenLogprobs
from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput
from qanat.core.request import FinishReason, Request
from qanat.core.sampling_params import SamplingParams
from qanat.engine.output_processor import OutputProcessor
from tests.engine.test_detokenizer import TOKENIZER

EOS = 256


def request(**sampling: object) -> Request:
    settings = {"max_tokens": 64, **sampling}
    return Request(
        request_id="r",
        prompt_token_ids=[1, 2],
        sampling=SamplingParams(**settings),  # type: ignore[arg-type]
        seed=0,
        stop_token_ids=[EOS],
    )


def run(outputs: list[RequestOutput], **sampling: object) -> tuple[list[GenerationEvent], str, bool]:
    processor = OutputProcessor(TOKENIZER, request(**sampling))
    events = []
    for output in outputs:
        step = processor.process(output)
        events.append(step.event)
        if step.event.finish_reason is not None:
            return events, "".join(event.text for event in events), step.must_abort
    return events, "".join(event.text for event in events), False


def outputs_of(
    token_ids: list[int], cuts: list[int], *, has_logprobs: bool = True, **last: object
) -> list[RequestOutput]:
    edges = [0, *sorted(cut % (len(token_ids) + 1) for cut in cuts), len(token_ids)]
    pieces = [token_ids[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    return [
        RequestOutput(
            request_id="r",
            new_token_ids=piece,
            logprobs=[TokenLogprobs([token_id], [-1.0], 1) for token_id in piece if has_logprobs],
            **(last if i == len(pieces) - 1 else {}),  # type: ignore[arg-type]
        )
        for i, piece in enumerate(pieces)
    ]


@given(
    st.text(alphabet="ab€", min_size=1, max_size=16),
    st.lists(st.integers(0, 64), max_size=6),
    st.lists(st.text(alphabet="ab€", min_size=1, max_size=3), max_size=2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_cutting_changes_nothing(
    text: str, cuts: list[int], stops: list[str], is_included: bool, has_logprobs: bool, min_tokens: int
) -> None:
    token_ids = [*TOKENIZER.encode(text), EOS]
    settings = {"stop": stops, "include_stop_str_in_output": is_included, "min_tokens": min_tokens}
    last = {"finish_reason": FinishReason.STOP, "stop_token_id": EOS}
    every = list(range(len(token_ids)))
    one_by_one, whole_text, _ = run(outputs_of(token_ids, every, **last), **settings)
    outputs = outputs_of(token_ids, cuts, has_logprobs=has_logprobs, **last)
    cut_events, cut_text, _ = run(outputs, **settings)
    assert cut_text == whole_text
    assert cut_events[-1].stop_reason == one_by_one[-1].stop_reason
    assert cut_events[-1].num_output_tokens == one_by_one[-1].num_output_tokens
    ids = [token_id for event in cut_events for token_id in event.token_ids]
    assert ids == [token_id for event in one_by_one for token_id in event.token_ids]
    assert len(ids) == cut_events[-1].num_output_tokens
    assert sum(len(event.logprobs) for event in cut_events) == (len(ids) if has_logprobs else 0)
    assert [event.finish_reason for event in cut_events].count(FinishReason.STOP) == 1


def test_stop_string_aborts_the_core_and_drops_later_tokens() -> None:
    events, text, must_abort = run(outputs_of(TOKENIZER.encode("xxABCyy"), []), stop=["ABC"])
    assert (text, must_abort, events[-1].stop_reason) == ("xx", True, "ABC")
    assert events[-1].num_output_tokens == 5


def test_stop_string_in_the_last_output_needs_no_abort() -> None:
    last = {"finish_reason": FinishReason.LENGTH}
    events, text, must_abort = run(outputs_of(TOKENIZER.encode("xABC"), [], **last), stop=["ABC"])
    assert (text, must_abort, events[-1].finish_reason) == ("x", False, FinishReason.STOP)


def test_eos_text_is_left_out_and_custom_stop_token_is_named() -> None:
    a = TOKENIZER.encode("a")[0]
    last = {"finish_reason": FinishReason.STOP, "stop_token_id": EOS}
    events, text, _ = run(outputs_of([a, EOS], [], **last), skip_special_tokens=False)
    assert (text, events[-1].stop_reason) == ("a", None)
    last = {"finish_reason": FinishReason.STOP, "stop_token_id": a}
    events, text, _ = run(outputs_of([*TOKENIZER.encode("xy"), a], [], **last), stop_token_ids=[a])
    assert (text, events[-1].stop_reason) == ("xy", a)
    events, text, _ = run(
        outputs_of([*TOKENIZER.encode("xy"), a], [], **last),
        stop_token_ids=[a],
        include_stop_str_in_output=True,
    )
    assert text == "xya"


def test_prompt_logprobs_of_several_chunks_come_once_with_the_first_position_empty() -> None:
    entry = TokenLogprobs([2, 5], [-0.5, -0.4], 2)
    first = RequestOutput(request_id="r", prompt_logprobs=[entry])
    second = RequestOutput(request_id="r", new_token_ids=[3], prompt_logprobs=[entry])
    events, _, _ = run([first, second], prompt_logprobs=1)
    assert events[0].prompt_logprobs is None
    assert events[1].prompt_logprobs is not None
    assert [None if p is None else p.chosen.token_id for p in events[1].prompt_logprobs] == [None, 2, 2]
    assert events[1].prompt_logprobs[1].top[0].token_id == 5  # type: ignore[union-attr]


def test_unfinished_character_becomes_a_replacement_at_the_end() -> None:
    half = TOKENIZER.encode("€")[:2]
    last = {"finish_reason": FinishReason.LENGTH}
    assert run(outputs_of(half, [], **last))[1] == "�"
