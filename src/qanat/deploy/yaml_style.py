"""How a text is written in YAML so that it is read back as it was."""

from __future__ import annotations

import re

import yaml

_ESCAPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
"""Characters that a reader takes for the end of a line, or not at all, unless they are escaped."""


def is_escaped(text: str) -> bool:
    """Whether only double quotes keep a text: plain, single quotes and blocks lose some ends of lines."""
    return _ESCAPED.search(text) is not None


class ExactDumper(yaml.SafeDumper):
    """A dumper whose texts are read back as they were."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if is_escaped(value) else None)


ExactDumper.add_representer(str, _text)
