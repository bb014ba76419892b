"""Text from tokens: joined pieces equal the whole, and stop strings end it at the same place however it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from qanat.engine.detokenizer import IncrementalDetokenizer, StopMatch, StopStringChecker
from qanat.engine.tokenizer import Tokenizer


def byte_tokenizer() -> Tokenizer:
    vocab = {character: i for i, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = HfTokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|end|>"])
    inner.add_tokens(["<think>"])
    return Tokenizer(inner, eos_token_ids=(256,))


TOKENIZER = byte_tokenizer()


@given(st.lists(st.integers(0, 257), max_size=40), st.booleans())
def test_pieces_joined_equal_the_whole(token_ids: list[int], skip: bool) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZER, skip_special_tokens=skip)
    pieces = [detokenizer.push(token_id) for token_id in token_ids] + [detokenizer.finish()]
    assert "".join(pieces) == TOKENIZER.decode(token_ids, skip_special_tokens=skip)


@given(st.text(max_size=20))
def test_encode_then_decode_is_identity(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text(alphabet="né€🚀 a", max_size=20))
def test_no_piece_ends_in_half_a_character(text: str) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZER, skip_special_tokens=True)
    pieces = [detokenizer.push(token_id) for token_id in TOKENIZER.encode(text)]
    assert "�" not in "".join(pieces)
    assert "".join(pieces) == text


def test_special_tokens_are_skipped_and_plain_added_tokens_kept() -> None:
    ids = [TOKENIZER.token_id("<think>"), 256]
    assert TOKENIZER.decode([i for i in ids if i is not None]) == "<think>"
    assert TOKENIZER.decode([256], skip_special_tokens=False) == "<|end|>"


def run_checker(pieces: list[str], stops: list[str], is_included: bool) -> tuple[str, str | None]:
    checker = StopStringChecker(stops, is_included=is_included)
    text = ""
    for piece in pieces:
        released = checker.push(piece)
        if isinstance(released, StopMatch):
            return text + released.text, released.stop
        text += released
    return text + checker.finish(), None


def expected(text: str, stops: list[str], is_included: bool) -> tuple[str, str | None]:
    """Scans character by character: the first stop to complete wins, then the one that begins first."""
    for end in range(1, len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            stop = max(matches, key=len)
            return text[: end if is_included else end - len(stop)], stop
    return text, None


@st.composite
def cut_texts(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(st.text(alphabet="abc", max_size=24))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    edges = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@given(cut_texts(), st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=3), st.booleans())
def test_stop_strings_do_not_depend_on_the_cutting(
    cut: tuple[str, list[str]], stops: list[str], is_included: bool
) -> None:
    text, pieces = cut
    assert run_checker(pieces, stops, is_included) == expected(text, stops, is_included)


def test_text_that_may_become_a_stop_string_is_held_back() -> None:
    checker = StopStringChecker(["DEFGHIJ"], is_included=False)
    assert [checker.push(piece) for piece in ("ABC", "DEF", "G", "HI")] == ["ABC", "", "", ""]
    assert checker.push("J") == StopMatch("DEFGHIJ", "")
