"""YAML that is written is what was meant, whatever the text."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.render.compose import literal
from qanat.deploy.render.yaml_text import yaml_text

TEXT = (
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.text(alphabet="a \n\r\x85\u2028\u2029\ufeff\x7f\x1b", max_size=8)
    | st.text(alphabet="ab \n\t:#-|>'\"$%&*!?{}[],", max_size=40)
)


@given(st.dictionaries(TEXT, st.lists(TEXT) | TEXT | st.booleans() | st.integers(), max_size=4))
def test_what_is_written_is_read(document: dict[str, object]) -> None:
    text = yaml_text([document, document])
    assert list(yaml.safe_load_all(text)) == [document, document]


def test_equal_parts_are_written_out() -> None:
    part = {"a": ["b"]}
    text = yaml_text([{"x": part, "y": part}])
    assert "&" not in text and text == "x:\n  a: [b]\ny:\n  a: [b]\n"


def test_scripts_stand_as_they_are() -> None:
    assert yaml_text([{"start.sh": "a\n  b\n"}]) == "start.sh: |\n  a\n    b\n"


@given(TEXT)
def test_compose_reads_no_variable_from_a_literal(text: str) -> None:
    assert literal(text).replace("$$", "") == text.replace("$", "")
    assert literal(text).replace("$$", "$") == text
