from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.config.command_line import Grammar, read_command_line
from qanat.config.engine_config import OPTIONS, EngineConfig
from qanat.config.known_flags import HIDDEN
from qanat.config.wishes import (
    Setting,
    build,
    from_keywords,
    merge,
    settings_of_flags,
    settings_of_mapping,
    settings_of_variables,
)
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

GRAMMAR = Grammar.of(OPTIONS.values())


def flags(*arguments: str) -> tuple[list[Setting], list[Decision]]:
    return settings_of_flags(read_command_line(arguments, GRAMMAR).written, GRAMMAR.kinds)


def wishes_of(line: list[str], variables: dict[str, str], file: dict[str, object]) -> EngineConfig:
    settings, notes = flags(*line)
    merged, more = merge([settings, settings_of_variables(variables), settings_of_mapping(file, "file.yaml")])
    return build(merged, [*notes, *more])


@pytest.mark.parametrize("sources", list(itertools.product([True, False], repeat=3)))
def test_flag_before_variable_before_file_before_default(sources: tuple[bool, bool, bool]) -> None:
    has_flag, has_variable, has_file = sources
    wishes = wishes_of(
        ["--port", "1"] if has_flag else [],
        {"QANAT_PORT": "2"} if has_variable else {},
        {"port": 3} if has_file else {},
    )
    assert wishes.port == (1 if has_flag else 2 if has_variable else 3 if has_file else 8000)
    assert len(wishes.notes) == max(0, sum(sources) - 1)
    if has_variable and has_file and not has_flag:
        assert str(wishes.notes[0]) == "file.yaml: port: ignored (wanted 3): QANAT_PORT goes before it"


def test_equal_values_from_two_sources_are_no_news() -> None:
    assert wishes_of(["--port", "1"], {"QANAT_PORT": "1"}, {}).notes == ()


def test_the_last_of_a_repeated_flag_holds_and_is_named() -> None:
    wishes = wishes_of(["--port", "1", "--port", "2"], {}, {})
    assert wishes.port == 2
    assert str(wishes.notes[0]) == "--port: 2 (wanted 1): given more than once; the last one holds"


def test_secrets_stay_out_of_the_notes() -> None:
    wishes = wishes_of(
        ["--api-key", "s3cret-a", "--api-key", "s3cret-b"],
        {"QANAT_API_KEY": "s3cret-c"},
        {"api-key": "s3cret-d"},
    )
    assert wishes.api_key == ("s3cret-b",)
    assert len(wishes.notes) == 3
    assert not any("s3cret" in str(note) for note in wishes.notes)
    assert HIDDEN in str(wishes.notes[0])


def test_variables_hold_lists_between_commas() -> None:
    wishes = wishes_of([], {"QANAT_SERVED_MODEL_NAME": "a, b", "QANAT_TRUST_REMOTE_CODE": "1"}, {})
    assert wishes.served_model_name == ("a", "b")
    assert wishes.trust_remote_code is True


@pytest.mark.parametrize("key", ["max-model-len", "max_model_len", "--max-model-len"])
def test_a_file_spells_keys_as_it_likes(key: str) -> None:
    assert wishes_of([], {}, {key: "32k"}).max_model_len == 32000


def test_a_file_may_negate_and_leave_open() -> None:
    wishes = wishes_of([], {}, {"no-enable-prefix-caching": True, "no_enforce_eager": False, "seed": None})
    assert wishes.enable_prefix_caching is False
    assert wishes.enforce_eager is True
    assert wishes.seed is None


def test_a_file_may_nest_json() -> None:
    wishes = wishes_of([], {}, {"compilation-config": {"cudagraph_mode": "NONE"}})
    assert wishes.compilation_config == {"cudagraph_mode": "NONE"}


def test_flags_that_only_vllm_knows_are_kept_with_their_values() -> None:
    wishes = wishes_of(
        ["--swap-space", "4"], {"QANAT_RENDERER_NUM_WORKERS": "2"}, {"limit-mm-per-prompt": {"image": 1}}
    )
    assert wishes.foreign_flags == {
        "swap-space": 4.0,
        "renderer-num-workers": 2,
        "limit-mm-per-prompt": {"image": 1},
    }


@pytest.mark.parametrize(
    ("line", "variables", "file", "part"),
    [
        (
            [],
            {},
            {"max-model-length": 1},
            "file.yaml: max-model-length: unknown setting; did you mean max-model-len?",
        ),
        ([], {}, {"port": [1]}, "file.yaml: port: [1] is not a whole number"),
        ([], {"QANAT_PORT": "http"}, {}, "QANAT_PORT: 'http' is not a whole number"),
        ([], {"QANAT_PORT": "99999"}, {}, "QANAT_PORT: 99999 is too large; the most is 65535"),
        ([], {"QANAT_DTYPE": "int4"}, {}, "QANAT_DTYPE: 'int4' is not one of auto"),
        (["--max_num_seqs", "0"], {}, {}, "--max_num_seqs: 0 is too small; the least is 1"),
        (["-tp", "two"], {}, {}, "-tp: 'two' is not a whole number"),
        (["--limit-mm-per-prompt", "image=2"], {}, {}, "--limit-mm-per-prompt: invalid JSON"),
        (
            ["--kv-cache-memory-bytes", "lots"],
            {},
            {},
            "--kv-cache-memory-bytes: 'lots' is not a size such as 4GiB",
        ),
    ],
)
def test_a_bad_value_names_the_place_where_it_stands(
    line: list[str], variables: dict[str, str], file: dict[str, object], part: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        wishes_of(line, variables, file)
    assert caught.value.message.startswith(part)


def test_keywords_take_text_and_values_alike() -> None:
    wishes = from_keywords(
        {
            "model": "m",
            "max_model_len": "8k",
            "served_model_name": "x",
            "swap_space": 4,
            "enforce_eager": True,
        }
    )
    assert (wishes.model, wishes.max_model_len, wishes.served_model_name) == ("m", 8000, ("x",))
    assert wishes.foreign_flags == {"swap-space": 4.0}


def test_folders_may_come_as_paths() -> None:
    wishes = from_keywords({"model": Path("some/model"), "served_model_name": "x"})
    assert wishes.model == "some/model"


def test_an_unknown_keyword_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="max_num_seq: unknown setting; did you mean max-num-seqs"):
        from_keywords({"max_num_seq": 4})


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["port", "seed", "max-num-seqs"]), st.integers(1, 9)), max_size=12))
def test_merging_keeps_the_first_source_of_each_flag(pairs: list[tuple[str, int]]) -> None:
    sources = [[Setting(name, value, f"source {index}")] for index, (name, value) in enumerate(pairs)]
    merged, notes = merge(sources)
    for name in {name for name, _ in pairs}:
        first = next(value for other, value in pairs if other == name)
        assert merged[name].value == first
        overruled = [value for other, value in pairs if other == name and value != first]
        assert len(overruled) == sum(merged[name].origin in note.why for note in notes)


def test_the_json_of_a_weaker_source_is_not_mixed_in(tmp_path: Path) -> None:
    wishes = wishes_of(["-cc.cudagraph_mode", "NONE"], {}, {"compilation-config": {"level": 3}})
    assert wishes.compilation_config == {"cudagraph_mode": "NONE"}
    assert len(wishes.notes) == 1
