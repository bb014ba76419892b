"""Any file read to facts; its kind is found by what it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath

from qanat.deploy.sources.env_files import read_env_document
from qanat.deploy.sources.guide import Guide
from qanat.deploy.sources.launch import Document, DocumentKind, Launch, Note, NoteKind
from qanat.deploy.sources.library import Library, Loader
from qanat.deploy.sources.reader import Reader, Scope
from qanat.deploy.sources.shell import Variables
from qanat.deploy.sources.shell_lines import START, LineState, mend
from qanat.deploy.sources.values import Source, Span, Value, value_at
from qanat.deploy.sources.yaml_files import YamlReader

SHEBANG = re.compile(r"\ufeff?#!.*\b(?:ba|z|da|k|a)?sh\b")
YAML_LINE = re.compile(r"(?:services|apiVersion|kind|model|served[-_]model[-_]name):", re.MULTILINE)
ODD = re.compile("[\x00-\x08\x0e-\x1a\x7f\ud800-\udfff]")
MAX_PROBED = 65536
"""Characters at the beginning of a file that show whether it is text."""
MAX_CHARS = 4_000_000
MAX_TEXT_SHARE = 0.2
"""Files of which more is text than this, by lines, are guides."""


def read_documents(texts: Mapping[str, str], load: Loader | None = None) -> list[Document]:
    """Reads files that are checked together, and those that they name.

    Args:
        texts: content by path.
        load: reads further files; None to follow none but those of `texts`.

    Returns:
        The files of `texts` in their order, then those that they name.
    """
    library = Library(texts, load)
    documents = {path: read_document(path, text, library) for path, text in texts.items()}
    while new := [path for path in library.followed if path not in documents]:
        for path in new:
            text = library.text(path)
            is_environment = library.followed[path]
            documents[path] = (
                read_env_document(path, text) if is_environment else read_document(path, text, library)
            )
    for path, is_environment in library.followed.items():
        if is_environment and documents[path].kind == "shell" and not documents[path].commands:
            documents[path] = read_env_document(path, library.text(path))
    return list(documents.values())


def read_document(path: str, text: str, library: Library | None = None) -> Document:
    """Reads a file; whatever it holds, this does not fail: what cannot be read is noted.

    Args:
        path: its name, for places.
        text: its content.
        library: files that it may name; None to follow none.
    """
    if PurePath(path).name.endswith(".env"):
        return read_env_document(path, text)
    is_cut = len(text) > MAX_CHARS
    source = Source(path, text[:MAX_CHARS] if is_cut else text)
    reader = Reader(source, library)
    kind = _read(reader)
    odd = [match.start() for match in ODD.finditer(source.text[:MAX_PROBED])]
    if "\x00" in source.text or len(odd) * 10 > len(source.text[:MAX_PROBED]):
        at = source.text.index("\x00") if "\x00" in source.text else odd[0]
        reader.notes.append(Note("binary", source.place(at, at + 1), "this is no text, or none in UTF-8"))
    if is_cut:
        place = source.place(MAX_CHARS, MAX_CHARS)
        reader.notes.append(Note("unreadable", place, f"only the first {MAX_CHARS} characters were read"))
    return _in_only_container(reader.document(kind))


def _read(reader: Reader) -> DocumentKind:
    source = reader.source
    suffix = PurePath(source.path).suffix.lower()
    if SHEBANG.match(source.text):
        return _shell(reader)
    if suffix in (".yaml", ".yml", ".json") or (
        suffix not in (".sh", ".bash", ".md") and _may_be_yaml(source.text)
    ):
        tried = Reader(source, reader.library)
        kind = YamlReader(tried, value_at(source, 0, len(source.text))).read()
        if kind is not None or suffix in (".yaml", ".yml", ".json"):
            reader.__dict__.update(tried.__dict__)
            return kind or "yaml"
    if suffix in (".sh", ".bash") or (suffix not in (".md", ".markdown", ".rst") and _is_script(source.text)):
        return _shell(reader)
    Guide(reader, on_yaml=lambda code: _yaml_block(reader, code)).read()
    return "guide"


def _yaml_block(reader: Reader, code: Value) -> None:
    YamlReader(reader, code).read()


def _may_be_yaml(text: str) -> bool:
    return len(YAML_LINE.findall(text)) > 0 and not re.search(r"^(?:export|vllm|docker) ", text, re.MULTILINE)


def _is_script(text: str) -> bool:
    """Whether nearly every line is one of a script."""
    state = LineState()
    num_lines = num_text = 0
    lines = text.split("\n")[:2000]
    for line in lines:
        if num_text > len(lines) * MAX_TEXT_SHARE:
            return False
        if not state.is_open and line.strip() and not line.lstrip().startswith("#"):
            num_lines += 1
            num_text += not START.match(line)
        if state.take(line) >= 0 and not state.quote:
            num_text += 1
        if line.startswith(("```", "~~~")):
            return False
    return num_lines > 0 and num_text <= num_lines * MAX_TEXT_SHARE


def _shell(reader: Reader) -> DocumentKind:
    source = reader.source

    def note(kind: NoteKind, start: int, end: int, message: str) -> None:
        reader.notes.append(Note(kind, source.place(start, end), message))

    text = mend(source.text.split("\n"), 0, note, cuts_prose=False)
    if "\\\r\n" in source.text:
        at = source.text.index("\\\r\n")
        note("windows-lines", at, at + 2, "Windows line ends: the shell takes each line for a command")
    span = Span(0, len(text), 0, len(text))
    code = Value(text, source.place(0, len(text)), (), (span,), source)
    reader.script(code, Variables(block=reader.new_block()), Scope())
    return "shell"


def _in_only_container(document: Document) -> Document:
    """Launches behind a guide's or script's only container run in it."""
    if len(document.containers) != 1 or document.kind in ("compose", "kubernetes"):
        return document
    (container,) = document.containers
    if any(launch.container is container for launch in document.launches):
        return document

    def inside(launch: Launch) -> Launch:
        is_outside = launch.container is not None or launch.kind in ("bench", "accuracy", "fragment")
        if is_outside or launch.place.start < container.place.start:
            return launch
        env = {one.name: one for one in container.env} | launch.env
        return replace(launch, container=container, env=env, image=container.image or launch.image)

    return replace(document, launches=tuple(inside(launch) for launch in document.launches))
