"""What reads the inside of one call, and which reader fits a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from qanat.server.tools.hermes import HermesCall
from qanat.server.tools.state import CallState
from qanat.server.tools.xml import XmlCall, function_line

PARSER_NAMES = ("hermes", "qwen3_coder", "qwen3_xml")
"""Values of --tool-call-parser; the last two are one format under both of its names."""


class CallFormat(Enum):
    """How a model writes a call between its tags."""

    HERMES = "hermes"
    XML = "xml"


class CallParser(Protocol):
    """Reads one call, from after its opening tag. What it says does not depend on how the text is cut.

    Attributes:
        state: how far the call has come.
        name: the function, once the state is no longer OPENING.
        rest: text after the end of a call that is DONE or BROKEN.
    """

    state: CallState
    name: str
    rest: str

    @property
    def is_in_value(self) -> bool:
        """True inside a text value, where the spelling of a tag is a part of the text."""
        ...

    def push(self, text: str) -> None:
        """Takes more of the call."""
        ...

    def close(self) -> None:
        """A tag came: the call is DONE, or BROKEN if it was not at an end, or MALFORMED if it never began."""
        ...

    def finish(self, *, is_turn_over: bool) -> None:
        """The output ended within the call: what was held back becomes arguments, and `rest` after a call's end.

        Args:
            is_turn_over: the model ended its turn, so that an end which it left out may be guessed.
        """
        ...

    def take_arguments(self) -> str:
        """JSON text of the arguments that became certain since the last time."""
        ...


ParserFactory = Callable[[], CallParser]
"""Makes a parser for the next call."""


def parser_factory(call_format: CallFormat, tools: Sequence[Mapping[str, Any]]) -> ParserFactory:
    """Parsers of calls to these tools.

    Args:
        call_format: as the model writes.
        tools: definitions in OpenAI's form; the schemas give XML values their types.
    """
    if call_format is CallFormat.HERMES:
        return HermesCall
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") for tool in tools}
    return lambda: XmlCall(schemas)


def bare_openings(call_format: CallFormat, tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """How calls to these tools begin where the model leaves the opening tag out.

    Empty for calls in JSON, of which nothing tells that they are no answer in JSON.
    """
    if call_format is CallFormat.HERMES:
        return ()
    return tuple(function_line(tool["function"]["name"]) for tool in tools)


def choose_format(wanted: str | None, model_family: str, chat_template: str | None) -> CallFormat | None:
    """The format of a model's calls; None if they are to stay text.

    Args:
        wanted: --tool-call-parser; None, or a name that is not known, goes by the model.
        model_family: as in `ModelConfig`.
        chat_template: the checkpoint's own; it tells Qwen3-Coder, whose family is Qwen3's, from Qwen3.
    """
    if wanted == "none":
        return None
    if wanted in PARSER_NAMES:
        return CallFormat.HERMES if wanted == "hermes" else CallFormat.XML
    is_xml = model_family.startswith("qwen3_5") or "<function=" in (chat_template or "")
    return CallFormat.XML if is_xml else CallFormat.HERMES
