"""YAML for people: keys in the order given, short lists on one line, texts of several lines as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from qanat.deploy.yaml_style import is_escaped

MAX_WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """A dumper that sets out texts of several lines and never refers back to what stands above."""

    def ignore_aliases(self, data: Any) -> bool:
        """Whether equal objects are written out each; anchors are for machines."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = '"' if is_escaped(value) else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(documents: Sequence[Any]) -> str:
    """The documents as YAML, parted by lines of dashes."""
    return yaml.dump_all(
        documents,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=MAX_WIDTH,
        default_flow_style=None,
        explicit_start=len(documents) > 1,
    )
