"""What rendering takes and gives: options in, files out, and words of a command that may be variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]
Install = Literal["image", "source"]


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """How a plan is rendered.

    Attributes:
        language: of the README.
        install: whether engines run in the release's image, or from source at the tags that pair.
        router_image: an image with Qanat, in which Kubernetes runs `qanat router`; empty where there is none.
    """

    language: Language = "en"
    install: Install = "image"
    router_image: str = ""


@dataclass(frozen=True)
class RenderedFile:
    """A file of the folder.

    Attributes:
        text: its content, ending with a newline.
        is_executable: whether a person runs it.
        is_edited_by_hand: whether a person is meant to change it, so that rendering again keeps what he wrote.
    """

    text: str
    is_executable: bool = False
    is_edited_by_hand: bool = False


Files = dict[str, RenderedFile]
"""Files by their path inside the folder, with slashes."""


@dataclass(frozen=True)
class Variable:
    """A value that stands in env.sh, by the name of the variable there."""

    name: str


Word = str | Variable
"""A word of a command line, or the value of a variable: known when rendering, or read from env.sh."""
