"""How a command's own flags are read beside the engine's: from the command line and from `QANAT_` variables."""

from __future__ import annotations

import os

import pytest

from qanat.cli import chat, plan, serve
from qanat.cli.command import Invocation, read_invocation
from qanat.core.errors import ConfigError


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("QANAT_"):
            monkeypatch.delenv(name)


def read_chat(*arguments: str) -> Invocation:
    return read_invocation(chat.COMMAND, arguments)


def said(invocation: Invocation) -> dict[str, object]:
    """Outcome of each of our variables that means nothing; what else this process has set does not matter."""
    decisions = invocation.environment.decisions
    return {each.field: each.got for each in decisions if each.field.startswith("QANAT_")}


def test_variables_of_a_commands_own_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QANAT_THINKING", "no")
    monkeypatch.setenv("QANAT_URL", "http://127.0.0.1:8010")
    monkeypatch.setenv("QANAT_TEMPERATURE", "0.5")
    monkeypatch.setenv("QANAT_DTYPE", "float32")
    invocation = read_chat("hi")
    own: chat.ChatOptions = invocation.own
    assert (own.thinking, own.url, own.temperature) == (False, "http://127.0.0.1:8010", 0.5)
    assert invocation.wishes.dtype == "float32"
    assert not said(invocation)

    monkeypatch.setenv("QANAT_AVAILABLE_MEMORY", "2GiB")
    assert read_invocation(plan.COMMAND, []).own.available_memory == 2 * 2**30


def test_the_flag_goes_before_its_variable_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QANAT_MAX_TOKENS", "7")
    invocation = read_chat("--max-tokens", "9", "hi")
    assert invocation.own.max_tokens == 9
    (note,) = invocation.wishes.notes
    assert (note.field, note.wanted, note.got) == ("QANAT_MAX_TOKENS", 7, "ignored")
    assert not read_chat("--max-tokens", "7", "hi").wishes.notes


@pytest.mark.parametrize(
    ("name", "text"), [("QANAT_TEMPERATURE", "-1"), ("QANAT_MAX_TOKENS", "some"), ("QANAT_THINKING", "maybe")]
)
def test_a_bad_value_names_the_variable(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError) as caught:
        read_chat("hi")
    assert caught.value.message.startswith(f"{name}: ")


def test_another_commands_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QANAT_THINKING", "no")
    assert said(read_invocation(serve.COMMAND, [])) == {"QANAT_THINKING": "ignored"}


def test_a_name_that_the_engine_has_too_is_the_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QANAT_API_KEY", "one,two")
    invocation = read_chat("hi")
    assert invocation.wishes.api_key == ("one", "two")
    assert invocation.own.api_key is None
