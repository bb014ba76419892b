"""Runs a chat template: jinja2 in an immutable sandbox, with the functions that checkpoints' templates expect."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qanat.core.errors import ConfigError, InvalidRequestError

MAX_RENDERED_CHARS = 32 * 2**20
"""Bound of a rendered prompt; no window is that long."""
MAX_REPEATED = 10_000
"""Characters or items that a repetition such as `"-" * 20` may make."""
MAX_BASE = 10**6
MAX_EXPONENT = 64


class _Raised(jinja2.TemplateError):
    """Raised by a template on purpose, with a message for the client."""


class _Environment(ImmutableSandboxedEnvironment):
    """Refuses the operations by which a few characters become gigabytes."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Repeats texts and lists a little, and raises small numbers to small powers."""
        if operator == "**":
            if abs(left) > MAX_BASE or abs(right) > MAX_EXPONENT:
                raise jinja2.TemplateRuntimeError("the power is too large")
        elif hasattr(left, "__len__") or hasattr(right, "__len__"):
            sequence, count = (left, right) if hasattr(left, "__len__") else (right, left)
            if len(sequence) * count > MAX_REPEATED:
                raise jinja2.TemplateRuntimeError("the repetition is too long")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: jinja text.
        variables: names that every rendering sees, such as bos_token.

    Raises:
        ConfigError: the text is not a valid template.
    """

    def __init__(self, source: str, variables: Mapping[str, Any] | None = None) -> None:
        environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _now
        self._variables = dict(variables or {})
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigError(
                f"The chat template does not compile: {error}.", param="--chat-template"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        has_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text.

        Args:
            messages: as the template reads them.
            tools: definitions, or None.
            has_generation_prompt: let the template begin the reply.
            variables: further names; they go before those of the constructor.

        Raises:
            InvalidRequestError: the template refuses the messages or fails on them, or the text gets too long.
        """
        context: dict[str, Any] = {**self._variables, **(variables or {})}
        context |= {"messages": messages, "tools": tools, "add_generation_prompt": has_generation_prompt}
        parts: list[str] = []
        num_chars = 0
        try:
            for piece in self._template.generate(context):
                parts.append(piece)
                num_chars += len(piece)
                if num_chars > MAX_RENDERED_CHARS:
                    raise InvalidRequestError("The rendered prompt is too long.", param="messages")
        except _Raised as error:
            raise InvalidRequestError(
                f"The chat template refuses these messages: {error}.", param="messages"
            ) from None
        except InvalidRequestError:
            raise
        except Exception as error:  # a template is a program: on odd messages it can fail in any way
            raise InvalidRequestError(
                f"The chat template fails on these messages: {type(error).__name__}: {error}.",
                param="messages",
            ) from None
        return "".join(parts)


def _raise(message: object) -> NoReturn:
    raise _Raised(str(message).rstrip("."))


def _now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    indent: int | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: not escaped for HTML, key order kept."""
    return json.dumps(
        value, indent=indent, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys
    )
