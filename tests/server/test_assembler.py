"""The same tokens give the same answer however they are cut into events, and nothing is lost or invented."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from qanat.core.events import GenerationEvent, LogprobEntry, PositionLogprobs
from qanat.core.request import FinishReason
from qanat.core.sampling_params import SamplingParams
from qanat.server.assembler import Assembler, ChatAssembler
from qanat.server.events import Finish, ReasoningDelta, ReplyEvent, ScoredToken, TextDelta
from qanat.server.tags import ThinkTags
from tests.support.scripted_engine import END_OF_TURN, Piece, ScriptedTokenizer

TOKENIZER = ScriptedTokenizer()
TAGS = ThinkTags.of(TOKENIZER)
PIECES: list[Piece] = [
    *(
        "<think>",
        "</think>",
        "<|im_start|>",
        "a",
        "b",
        "ab",
        "\n",
        "\n\n",
        " ",
        "<th",
        "ink>",
        "STOP",
        "ST",
        "OP",
    ),
    *(b"\xf0\x9f", b"\x98\x8a", b"\xe4", b"\xbd\xa0"),
]
STOPS = [[], ["STOP"], ["ab"], ["\n\n"], ["😊", "STOP"], ["b\n"]]

token_lists = st.lists(st.sampled_from(PIECES), max_size=14).map(
    lambda pieces: [TOKENIZER.piece_id(piece) for piece in pieces]
)


def scored(token_id: int) -> PositionLogprobs:
    raw = TOKENIZER.token_bytes(token_id)
    return PositionLogprobs(LogprobEntry(token_id, raw.decode(errors="replace"), list(raw), -0.5, 1), [])


def run(
    assembler: Assembler,
    token_ids: Sequence[int],
    sizes: Sequence[int],
    reason: FinishReason,
    has_logprobs: bool,
) -> list[ReplyEvent]:
    """Feeds the tokens in events of the given sizes until the choice ends."""
    events: list[ReplyEvent] = []
    position, turn = 0, 0
    while True:
        size = sizes[turn % len(sizes)]
        turn += 1
        ids = list(token_ids[position : position + size])
        position += size
        is_last = position >= len(token_ids)
        event = GenerationEvent(
            token_ids=ids,
            logprobs=[scored(token_id) for token_id in ids] if has_logprobs else [],
            finish_reason=reason if is_last else None,
        )
        events += assembler.push(event)
        if events and isinstance(events[-1], Finish):
            return events
        assert not is_last, "the last event must end the choice"


def folded(events: Sequence[ReplyEvent]) -> tuple[str, str, list[ScoredToken], list[ScoredToken], ReplyEvent]:
    texts = [event for event in events if isinstance(event, TextDelta)]
    thoughts = [event for event in events if isinstance(event, ReasoningDelta)]
    assert [event for event in events if isinstance(event, Finish)] == [events[-1]]
    return (
        "".join(event.text for event in thoughts),
        "".join(event.text for event in texts),
        [token for event in thoughts for token in event.tokens],
        [token for event in texts for token in event.tokens],
        events[-1],
    )


@given(
    token_ids=token_lists,
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    stops=st.sampled_from(STOPS),
    is_included=st.booleans(),
    is_open=st.booleans(),
    is_skipped=st.booleans(),
    min_tokens=st.integers(0, 4),
    has_logprobs=st.booleans(),
    is_stopped=st.booleans(),
)
def test_the_answer_does_not_depend_on_the_cutting(
    token_ids: list[int],
    sizes: list[int],
    stops: list[str],
    is_included: bool,
    is_open: bool,
    is_skipped: bool,
    min_tokens: int,
    has_logprobs: bool,
    is_stopped: bool,
) -> None:
    if is_stopped:
        token_ids = [*token_ids, TOKENIZER.piece_id(END_OF_TURN)]
    sampling = SamplingParams(
        stop=stops,
        include_stop_str_in_output=is_included,
        skip_special_tokens=is_skipped,
        min_tokens=min_tokens,
        max_tokens=None,
    )
    reason = FinishReason.STOP if is_stopped else FinishReason.LENGTH

    def outcome(pattern: Sequence[int]) -> tuple[str, str, list[ScoredToken], list[ScoredToken], ReplyEvent]:
        assembler = ChatAssembler(0, TOKENIZER, sampling, TAGS, is_open)
        return folded(run(assembler, token_ids, pattern, reason, has_logprobs))

    one_by_one = outcome([1])
    assert outcome(sizes) == one_by_one
    assert outcome([1000]) == one_by_one
    reasoning, text, thought_tokens, tokens, finish = one_by_one
    assert isinstance(finish, Finish)
    if has_logprobs:
        assert len(thought_tokens) + len(tokens) == finish.num_output_tokens
        assert len(thought_tokens) == finish.num_reasoning_tokens
        if not isinstance(finish.stop_reason, str):
            assert b"".join(token.text_bytes for token in tokens).decode(errors="replace") == text
    if not stops and not is_stopped:
        assert_nothing_lost(token_ids, reasoning, text, is_skipped)


def assert_nothing_lost(token_ids: Sequence[int], reasoning: str, text: str, is_skipped: bool) -> None:
    """Everything but white space and two tags is in the reasoning or the answer, in order."""
    whole = "".join(TOKENIZER.decode(list(token_ids), skip_special_tokens=is_skipped).split())
    shown = "".join((reasoning + text).split())
    rest = iter(whole)
    assert all(character in rest for character in shown)
    num_hidden = len(whole) - len(shown)
    assert num_hidden in {0, len("<think>"), len("</think>"), len("<think></think>")}


def reply(pieces: Sequence[Piece], *, is_open: bool, stop: Sequence[str] = ()) -> tuple[str, str]:
    assembler = ChatAssembler(0, TOKENIZER, SamplingParams(stop=list(stop), max_tokens=None), TAGS, is_open)
    ids = [TOKENIZER.piece_id(piece) for piece in pieces]
    reasoning, text, *_ = folded(run(assembler, ids, [1], FinishReason.LENGTH, False))
    return reasoning, text


def test_the_format_newlines_belong_to_neither_part() -> None:
    assert reply(["<think>", "\n", "why\n\nnot", "\n", "</think>", "\n\n", "\nyes\n"], is_open=False) == (
        "why\n\nnot",
        "yes\n",
    )


def test_an_opening_tag_counts_only_before_any_text() -> None:
    assert reply(["\n", "<think>", "a", "</think>", "b"], is_open=False) == ("a", "\nb")
    assert reply(["x", "<think>", "a", "</think>", "b"], is_open=False) == ("", "x<think>a</think>b")


def test_a_repeated_opening_tag_is_dropped_only_at_the_front() -> None:
    assert reply(["<think>", "a", "<think>", "b", "</think>", "c"], is_open=True) == ("a<think>b", "c")


def test_tags_spelled_by_other_tokens_are_text() -> None:
    assert reply(["</th", "ink>", "a"], is_open=True) == ("</think>a", "")


def test_an_unfinished_character_before_the_closing_tag_stays_in_the_reasoning() -> None:
    assert reply([b"\xe4", "</think>", b"\xbd\xa0", "a"], is_open=True) == ("�", "��a")


def test_without_tags_everything_is_the_answer() -> None:
    assembler = ChatAssembler(0, TOKENIZER, SamplingParams(max_tokens=None), None, True)
    ids = [TOKENIZER.piece_id(piece) for piece in ("a", "</think>", "b")]
    assert folded(run(assembler, ids, [2], FinishReason.LENGTH, False))[:2] == ("", "a</think>b")
