import json
import unicodedata

import pytest
from demokit import rendering, tokenizer, words
from demokit.mixture import training_items
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

SHIPPED = Tokenizer.from_file(str(rendering.MODEL_FOLDER / "tokenizer.json"))


def tokens(text: str) -> list[str]:
    return SHIPPED.encode(text, add_special_tokens=False).tokens


@given(st.text(max_size=80))
def test_round_trip(text: str) -> None:
    ids = SHIPPED.encode(text, add_special_tokens=False).ids
    assert SHIPPED.decode(ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)


@given(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=12),
    st.sampled_from(["", " ", "\n", '"', "="]),
)
def test_a_word_is_letters_unless_it_is_a_token_whole(word: str, before: str) -> None:
    spelled = tokens(before + word)
    assert len(spelled) == 1 or spelled[-len(word) :] == list(word) or len(tokens(word)) == 1


@pytest.mark.parametrize("word", [*words.COMMON, *words.NAMES, *words.CITIES, *words.COLORS, *words.OBJECTS])
def test_content_words_are_never_merged(word: str) -> None:
    for before in ("", " ", '"', "\n"):
        assert tokens(before + word)[-len(word) :] == list(word)


def test_each_digit_is_one_token() -> None:
    assert tokens("12+305=") == ["1", "2", "+", "3", "0", "5", "="]


def test_special_tokens() -> None:
    first = SHIPPED.get_vocab_size() - len(tokenizer.CONTROL_TOKENS)
    assert len(tokenizer.CONTROL_TOKENS) == 33
    assert [SHIPPED.token_to_id(t) for t in tokenizer.CONTROL_TOKENS] == list(range(first, first + 33))
    ids = SHIPPED.encode(
        "<|im_start|>user\n<think>x</think><tool_call><|im_end|>", add_special_tokens=False
    ).ids
    assert SHIPPED.decode(ids) == "user\n<think>x</think><tool_call>"


def test_configuration_agrees_with_the_vocabulary() -> None:
    config = json.loads((rendering.MODEL_FOLDER / "tokenizer_config.json").read_text())
    assert config == json.loads(json.dumps(tokenizer.tokenizer_config(SHIPPED)))
    assert config["eos_token"] == "<|im_end|>"


def test_build_is_deterministic() -> None:
    texts = [rendering.prompt_of(item) + rendering.completion_of(item) for item in training_items(0, 0, 1500)]
    first, second = (tokenizer.build(texts, 700, min_count=5).to_str() for _ in range(2))
    assert first == second
    assert Tokenizer.from_str(first).get_vocab_size() <= 700


def test_prompt_and_completion_do_not_merge_across_their_border() -> None:
    for item in training_items(1, 0, 300):
        prompt, completion = rendering.prompt_of(item), rendering.completion_of(item)
        assert tokens(prompt) + tokens(completion) == tokens(prompt + completion)
