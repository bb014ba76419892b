"""Files of variables for containers: `docker run --env-file`, `env_file:` of Compose."""

from __future__ import annotations

import re

from qanat.deploy.sources.launch import Assignment, Document
from qanat.deploy.sources.values import Source, value_at

_LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=(.*)$", re.MULTILINE | re.ASCII)
_COMMENT = re.compile(r"[ \t]+#.*$")
QUOTES = ("'", '"')


def read_variables(source: Source, block: int, is_unquoted: bool) -> tuple[Assignment, ...]:
    """The variables of such a file; names without a value come from outside and are not among them.

    Args:
        source: the file.
        block: number of the piece of script that starts the container.
        is_unquoted: quotes around a value are taken off, as Compose does; docker leaves them where they are.
    """
    found = []
    for match in _LINE.finditer(source.text):
        text = match.group(2).rstrip("\r")
        start = match.start(2)
        if is_unquoted:
            stripped = _COMMENT.sub("", text).strip()
            start += text.find(stripped) if stripped else 0
            text = stripped
            if len(text) > 1 and text[0] in QUOTES and text[-1] == text[0]:
                start, text = start + 1, text[1:-1]
        value = value_at(source, start, start + len(text))
        place = source.place(match.start(1), start + len(text))
        found.append(Assignment(match.group(1), value, place, "container", block))
    return tuple(found)


def read_env_document(path: str, text: str) -> Document:
    """Such a file as a document of its own."""
    variables = read_variables(Source(path, text), 0, is_unquoted=True)
    return Document(path=path, text=text, kind="env", assignments=variables)
