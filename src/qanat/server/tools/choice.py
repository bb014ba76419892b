"""Which functions a request offers to the model, and whether the model may, must or must not call one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.core.errors import InvalidRequestError

Tool = dict[str, Any]

MAX_TOOLS = 1024
"""Most functions in one request, and most entries in a choice among them."""
MAX_NAMED = 10
"""How many names an error lists."""
MAX_NAME_CHARS = 64
"""How much of a name an error repeats."""
_CHOICE = "tool_choice"
_MODES = ("auto", "required")


@dataclass(frozen=True)
class ToolUse:
    """What tools and tool_choice say together.

    Attributes:
        offered: definitions to render and to read calls of; None without any.
        is_required: the model must call.
        only: the one function that it must call; None leaves the choice to it.
    """

    offered: list[Tool] | None = None
    is_required: bool = False
    only: str | None = None

    @property
    def is_strict(self) -> bool:
        """True if calls of at least one function must follow its schema."""
        return any(tool["function"].get("strict") is True for tool in self.offered or ())


def tool_use(tools: Sequence[Mapping[str, Any]] | None, choice: str | Mapping[str, Any] | None) -> ToolUse:
    """Reads both fields of a chat request.

    Args:
        tools: definitions in OpenAI's form.
        choice: "none", "auto", "required", a function, or a set of allowed tools; None is auto with tools.

    Raises:
        InvalidRequestError: a tool or the choice has the wrong shape, or names a function that is not offered.
    """
    offered = checked_tools(tools)
    if choice is None or choice == "none":
        return ToolUse(offered if choice is None else None)
    if not offered:
        raise InvalidRequestError(
            f"{_CHOICE} {choice if isinstance(choice, str) else choice.get('type')} needs tools.",
            param=_CHOICE,
        )
    if isinstance(choice, str):
        if choice not in _MODES:
            raise InvalidRequestError(
                f"{_CHOICE} must be none, auto, required or an object, got {choice!r}.", param=_CHOICE
            )
        return ToolUse(offered, is_required=choice == "required")
    kind = choice.get("type")
    if kind == "function":
        name = _name_in(choice, _names(offered), _CHOICE)
        return ToolUse(offered, is_required=True, only=name)
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools", choice), offered)
    raise InvalidRequestError(
        f"{_CHOICE}.type must be function or allowed_tools, got {kind!r}.", param=f"{_CHOICE}.type"
    )


def checked_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Tool] | None:
    """The definitions to render; None without any.

    Raises:
        InvalidRequestError: a tool has the wrong shape, or there are too many.
    """
    _check_number(tools or (), "tools")
    for i, tool in enumerate(tools or ()):
        _check_tool(tool, f"tools[{i}]")
    return [dict(tool) for tool in tools] if tools else None


def _allowed(allowed: object, offered: list[Tool]) -> ToolUse:
    """A choice among some of the tools: the others are not shown to the model."""
    path = f"{_CHOICE}.allowed_tools"
    if not isinstance(allowed, Mapping) or not isinstance(allowed.get("tools"), list) or not allowed["tools"]:
        raise InvalidRequestError(f"{path}.tools must list at least one tool.", param=f"{path}.tools")
    mode = allowed.get("mode", "auto")
    if mode not in _MODES:
        raise InvalidRequestError(
            f"{path}.mode must be auto or required, got {mode!r}.", param=f"{path}.mode"
        )
    _check_number(allowed["tools"], f"{path}.tools")
    known = _names(offered)
    names = {_name_in(tool, known, f"{path}.tools[{i}]") for i, tool in enumerate(allowed["tools"])}
    kept = [tool for tool in offered if tool["function"]["name"] in names]
    return ToolUse(kept, is_required=mode == "required")


def _check_number(tools: Sequence[object], path: str) -> None:
    if len(tools) > MAX_TOOLS:
        raise InvalidRequestError(
            f"{path} has {len(tools):,} entries; one request may have at most {MAX_TOOLS:,}. Send fewer.",
            param=path,
        )


def _names(offered: list[Tool]) -> dict[str, None]:
    """The functions' names, in order."""
    return {tool["function"]["name"]: None for tool in offered}


def _name_in(named: object, known: Mapping[str, None], path: str) -> str:
    """The function's name, which must be one of those offered."""
    function = named.get("function") if isinstance(named, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise InvalidRequestError(f"{path}.function.name must be a string.", param=f"{path}.function.name")
    if name not in known:
        listed = [_shortened(other) for other in itertools.islice(known, MAX_NAMED)]
        more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
        raise InvalidRequestError(
            f"{path}: {_shortened(name)!r} is not in tools ({', '.join(listed)}{more}).", param=path
        )
    return name


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else name[:MAX_NAME_CHARS] + "..."


def _check_tool(tool: Mapping[str, Any], path: str) -> None:
    if tool.get("type") != "function":
        raise InvalidRequestError(f'{path}.type must be "function".', param=f"{path}.type")
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise InvalidRequestError(
            f"{path}.function.name must be a non-empty string.", param=f"{path}.function.name"
        )
    if not isinstance(function.get("parameters", {}), dict | None):
        raise InvalidRequestError(
            f"{path}.function.parameters must be a JSON schema.", param=f"{path}.function.parameters"
        )
    if not isinstance(function.get("strict"), bool | None):
        raise InvalidRequestError(
            f"{path}.function.strict must be true or false.", param=f"{path}.function.strict"
        )
