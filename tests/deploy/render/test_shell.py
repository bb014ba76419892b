from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.deploy.render.model import Variable
from qanat.deploy.render.shell import array, assignments, comment, quote, word

texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"))


def bash(script: str) -> list[str]:
    result = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    return result.stdout.decode("utf-8").split("\0")[:-1]


@settings(max_examples=60, deadline=None)
@given(st.lists(texts, min_size=1, max_size=20))
def test_any_text_arrives_unchanged(values: list[str]) -> None:
    assert bash("printf '%s\\0' " + " ".join(map(quote, values))) == values


@settings(max_examples=30, deadline=None)
@given(st.lists(texts, min_size=1, max_size=20))
def test_any_text_can_stand_in_an_array_and_a_variable(values: list[str]) -> None:
    script = array("values", list(values)) + "\n" + assignments({"first": values[0]})
    assert bash(script + '\nprintf \'%s\\0\' "$first" "${values[@]}"') == [values[0], *values]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_a_comment_says_nothing_to_bash(text: str) -> None:
    assert bash(comment(text) + "\nprintf 'a\\0'") == ["a"]


def test_plain_words_stay_readable() -> None:
    assert quote("/data/models/Qwen3.5-397B") == "/data/models/Qwen3.5-397B"
    assert quote("") == "''"
    assert quote("it's") == "'it'\\''s'"
    assert word(Variable("MODEL_PATH")) == '"$MODEL_PATH"'


@pytest.mark.parametrize("text", ["a\0b", "a\ud800"])
def test_what_no_command_line_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        quote(text)
