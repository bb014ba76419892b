"""Whatever a file holds, reading it ends, and every place lies within the file."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.deploy.sources.documents import read_document
from qanat.deploy.sources.json_text import JsonNode
from qanat.deploy.sources.launch import Document
from qanat.deploy.sources.values import Place

PATHS = ("a.sh", "a.md", "a.yaml", "a.txt", "a")
PIECES = (
    "'", '"', "\\", "$", "${", "}", "(", ")", "$(", "`", "<<EOF\n", "EOF\n", "\n", "|", "&", "[", "]", "#", "```",
    "```yaml\n", "\x00", "\ud800", "\ufeff", "：", "由于", "--", "=", "export A=", "vllm serve ", "docker run ",
    'bash -c "', " ", "\r\n", "- ", "services:\n", "  image: a\n", "apiVersion: v1\nkind: x\n", "model: m\nport: 1\n",
    "for i in 1 2; do ", "done", "if [ ", "fi", "*x", "&x ", "!!python/object ", "${A[@]}", "A=(", "A+=$A", '"$A$A"',
    "--additional-config '{", '"k": ', "{", "1.5e999", "<ip>", "$ ", "#!/bin/sh\n", "case a in", "esac", "--a.b.c 1",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=300)


def places(document: Document) -> list[Place]:
    found = [
        one.place for one in (*document.commands, *document.assignments, *document.mentions, *document.notes)
    ]
    for launch in document.launches:
        found.append(launch.place)
        for flag in launch.flags:
            found += [flag.place, *(value.place for value in flag.values)]
            found += [value.place_of(at, at + 1) for value in flag.values for at in range(len(value.text))]
            if isinstance(flag.json, JsonNode):
                found += [node.place for _, node in flag.json.walk()]
    return found


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PATHS), TEXTS)
def test_reading_ends_with_every_place_inside_the_file(path: str, text: str) -> None:
    num_lines = text.count("\n") + 1
    for place in places(read_document(path, text)):
        assert 0 <= place.start <= place.end <= len(text)
        assert 1 <= place.line <= place.end_line <= num_lines


@settings(max_examples=100, deadline=None)
@given(
    st.from_regex(r"[A-Za-z0-9_./:][A-Za-z0-9_./:-]{0,11}", fullmatch=True),
    st.integers(0, 3),
    st.sampled_from(("'", '"', "")),
)
def test_a_value_is_found_where_it_was_written(text: str, num_lines: int, quote: str) -> None:
    written = (
        "#!/bin/bash\n" + "\n" * num_lines + f"vllm serve m \\\n  --served-model-name {quote}{text}{quote}\n"
    )
    flag = read_document("a.sh", written).launches[0].flag("--served-model-name")
    assert flag is not None and flag.value is not None and flag.value.text == text
    place = flag.value.place_of(0, len(text))
    assert written[place.start : place.end] == text and place.line == 3 + num_lines


def test_deep_nesting_and_growing_variables_end() -> None:
    read_document("a.sh", "$(" * 5000)
    read_document("a.sh", "vllm serve m --additional-config '" + "[" * 5000 + "'")
    read_document("a.sh", "A=xxxxxxxxxx\n" + 'A="$A$A"\n' * 32 + "vllm serve $A --port $A\n")
    read_document("a.sh", 'bash -c "' * 400 + "vllm serve m" + '"' * 400)
    read_document("a.yaml", "model: m\nport: " + "[" * 3000 + "\n")
    read_document("a.md", "vllm serve m --x '" + "\n正文" * 3000)
