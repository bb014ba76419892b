from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.config.command_line import CommandLine, Grammar, read_command_line
from qanat.config.engine_config import OPTIONS
from qanat.config.known_flags import known_flags
from qanat.config.values import Kind
from qanat.config.wishes import settings_of_flags
from qanat.core.errors import ConfigError

GRAMMAR = Grammar.of(OPTIONS.values())
SAMPLES = {
    Kind.TEXT: "some text",
    Kind.COUNT: "12",
    Kind.LENGTH: "8k",
    Kind.BYTES: "4GiB",
    Kind.NUMBER: "0.25",
    Kind.JSON: '{"a": {"b": [1, 2]}}',
}


def read(*arguments: str) -> CommandLine:
    return read_command_line(arguments, GRAMMAR)


def values(*arguments: str) -> dict[str, object]:
    settings, _ = settings_of_flags(read(*arguments).written, GRAMMAR.kinds)
    return {setting.name: setting.value for setting in settings}


def spelled(draw: st.DrawFn, name: str) -> str:
    """The flag with some of its inner dashes as underscores, or one of its aliases."""
    aliases = [alias for alias, target in GRAMMAR.aliases.items() if target == name and alias != "-O"]
    if aliases and draw(st.booleans()):
        return draw(st.sampled_from(aliases))
    return "--" + "".join(draw(st.sampled_from("-_")) if letter == "-" else letter for letter in name)


@settings(deadline=None)
@given(st.data())
def test_any_spelling_of_a_flag_reads_the_same(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(GRAMMAR.kinds)))
    kind = GRAMMAR.kinds[name]
    if kind is Kind.SWITCH:
        is_on = data.draw(st.booleans())
        plain = [f"--{name}"] if is_on else [f"--no-{name}"]
        variant = spelled(data.draw, name)
        if variant.startswith("--") and not is_on and data.draw(st.booleans()):
            words = [f"--no-{variant[2:]}"]
        else:
            words = [f"{variant}={'true' if is_on else 'false'}"]
    elif kind is Kind.TEXTS:
        texts = data.draw(st.lists(st.text("abc1", min_size=1), min_size=1, max_size=3))
        plain, words = [f"--{name}", *texts], [spelled(data.draw, name), *texts]
    else:
        plain = [f"--{name}", SAMPLES[kind]]
        variant = spelled(data.draw, name)
        words = data.draw(st.sampled_from([[variant, SAMPLES[kind]], [f"{variant}={SAMPLES[kind]}"]]))
    before = data.draw(st.sampled_from([[], ["model"], ["model", "--port", "3"]]))
    if name == "port":
        before = before[:1]
    assert values(*before, *words) == values(*before, *plain)
    assert read(*words).notes == ()


@settings(deadline=None)
@given(st.sampled_from(sorted(GRAMMAR.kinds)), st.integers(3, 40))
def test_an_unambiguous_prefix_is_read_with_a_note_and_any_other_names_its_candidates(
    name: str, length: int
) -> None:
    prefix = name[:length]
    found = [other for other in GRAMMAR.kinds if other.startswith(prefix)]
    kind = GRAMMAR.kinds[prefix if prefix in GRAMMAR.kinds else name]
    words = [f"--{prefix}"] if kind is Kind.SWITCH else [f"--{prefix}", SAMPLES.get(kind, "x")]
    if prefix in GRAMMAR.kinds:
        assert read(*words).written[0].name == prefix
    elif len(found) == 1:
        line = read(*words)
        assert [use.name for use in line.written] == [name]
        assert line.notes[0].got == f"--{name}" and "write the flag in full" in line.notes[0].why
    else:
        with pytest.raises(ConfigError, match=f"--{prefix} could be --"):
            read(*words)


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("--gpu-memory-utilisation", "--gpu-memory-utilization"),
        ("--max-model-length", "--max-model-len"),
        ("--tensor-paralel-size", "--tensor-parallel-size"),
        ("--swap-spaces", "--swap-space"),
        ("--enable-prefix-cache", "--enable-prefix-caching"),
    ],
)
def test_an_unknown_flag_names_the_nearest(word: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown flag {word}; did you mean {nearest}\\?"):
        read(word, "1")


@pytest.mark.parametrize("word", ["--zzzzz", "-x", "-tp8", "--", "-", "--no-zzzzz", "--no"])
def test_nothing_unknown_passes_as_a_flag(word: str) -> None:
    if word in ("--", "-"):
        assert read(word).written == ()
        return
    with pytest.raises(ConfigError, match="unknown flag"):
        read(word)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--port"], "--port needs a value: --port N"),
        (["--port", "--host", "x"], "--port needs a value"),
        (["--served-model-name"], "needs a value: --served-model-name TEXT"),
        (["--no-port"], "--port takes a value and cannot be negated"),
        (["--no-enforce-eager=true"], "takes no value"),
        (["--port.x", "3"], "takes no JSON"),
        (["--trust-remote-code=perhaps"], "neither true nor false"),
    ],
)
def test_misused_flags_say_what_is_wrong(words: list[str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        values(*words)
    assert part in caught.value.message


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("\u2013async-scheduling", "async-scheduling"),
        ("\u2014async-scheduling", "async-scheduling"),
        ("-\u2013async-scheduling", "async-scheduling"),
        ("-async-scheduling", "async-scheduling"),
        ("-async_scheduling", "async-scheduling"),
    ],
)
def test_dashes_that_were_changed_on_the_way_are_mended_with_a_note(word: str, name: str) -> None:
    line = read(word)
    assert [use.name for use in line.written] == [name]
    assert line.notes[0].field == word and "two plain dashes" in line.notes[0].why


def test_one_dash_before_a_json_flag() -> None:
    """The seeds write it so in their text."""
    assert values("-compilation-config", '{"cudagraph_mode": "NONE"}') == {
        "compilation-config": {"cudagraph_mode": "NONE"}
    }


def test_a_negative_number_is_a_value() -> None:
    assert values("--max-model-len", "-1") == {"max-model-len": None}
    assert values("--seed", "-3") == {"seed": -3}


def test_values_that_look_like_flags_go_behind_an_equals_sign() -> None:
    assert values("--chat-template=--x") == {"chat-template": "--x"}
    assert values("--chat-template=a=b") == {"chat-template": "a=b"}


def test_a_list_ends_at_the_next_flag() -> None:
    line = read("--served-model-name", "a", "b", "--port", "1", "word", "--", "--not-a-flag")
    assert line.words == ("word", "--not-a-flag")
    assert line.written[0].texts == ("a", "b")


def test_keys_go_into_json() -> None:
    assert values(
        "--compilation-config",
        '{"cudagraph_mode": "NONE", "pass_config": {"enable_sp": true}}',
        "--compilation_config.cudagraph_mode",
        "FULL_DECODE_ONLY",
        "-cc.pass_config.enable_sp=false",
        "-cc.cudagraph_capture_sizes+",
        "1",
        "-cc.cudagraph_capture_sizes+",
        "2",
    ) == {
        "compilation-config": {
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "pass_config": {"enable_sp": False},
            "cudagraph_capture_sizes": [1, 2],
        }
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(st.dictionaries(st.text("abc_", min_size=1), json_values, min_size=1, max_size=4))
def test_json_key_by_key_is_the_same_as_json_at_once(value: dict[str, object]) -> None:
    words = [word for key, inner in value.items() for word in (f"-sc.{key}", json.dumps(inner))]
    assert (
        values(*words) == values(f"--speculative-config={json.dumps(value)}") == {"speculative-config": value}
    )


def test_appending_to_what_is_no_list_is_an_error() -> None:
    with pytest.raises(ConfigError, match="cudagraph_mode is no list"):
        values("-cc", '{"cudagraph_mode": "NONE"}', "-cc.cudagraph_mode+", "1")


@pytest.mark.parametrize("words", [["-O3"], ["-O=3"], ["--optimization-level", "3"]])
def test_the_optimisation_level(words: list[str]) -> None:
    assert values(*words) == {"optimization-level": "3"}


def test_every_known_flag_is_understood() -> None:
    for name, known in known_flags().items():
        words = [] if known.kind is Kind.SWITCH else [SAMPLES.get(known.kind, "word")]
        assert set(values(f"--{name}", *words)) == {name}
