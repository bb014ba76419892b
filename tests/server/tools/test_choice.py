"""What tools and tool_choice say together, and which of it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from qanat.core.errors import InvalidRequestError
from qanat.server.tools.choice import MAX_TOOLS, ToolUse, tool_use
from tests.server.test_errors import CHAT, HI, refuse
from tests.server.tools.replies import tool
from tests.support.app_server import AppServer, serving

TOOLS = [tool("a"), tool("b")]
NAMED = {"type": "function", "function": {"name": "b"}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    named = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolUse(TOOLS)),
        ("auto", ToolUse(TOOLS)),
        ("none", ToolUse(None)),
        ("required", ToolUse(TOOLS, is_required=True)),
        (NAMED, ToolUse(TOOLS, is_required=True, only="b")),
        (allowed("auto", "b"), ToolUse(TOOLS[1:])),
        (allowed("required", "b", "a"), ToolUse(TOOLS, is_required=True)),
    ],
    ids=str,
)
def test_what_a_choice_means(choice: Any, expected: ToolUse) -> None:
    assert tool_use(TOOLS, choice) == expected


def test_no_tools() -> None:
    assert tool_use(None, None) == tool_use([], None) == tool_use(None, "none") == ToolUse()


def test_strict_is_read_from_the_tools_that_are_offered() -> None:
    strict = {"type": "function", "function": {"name": "s", "strict": True}}
    assert tool_use([*TOOLS, strict], None).is_strict
    assert not tool_use([*TOOLS, strict], "none").is_strict
    assert not tool_use([*TOOLS, strict], allowed("auto", "a")).is_strict
    assert not tool_use([{"type": "function", "function": {"name": "s", "strict": None}}], None).is_strict


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "custom"}}, "tool_choice.type"),
        ({"tools": TOOLS, "tool_choice": 5}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools.tools"),
        ({"tools": TOOLS, "tool_choice": allowed("auto")}, "tool_choice.allowed_tools.tools"),
        ({"tools": TOOLS, "tool_choice": allowed("any", "a")}, "tool_choice.allowed_tools.mode"),
        ({"tools": TOOLS, "tool_choice": allowed("auto", "a", "x")}, "tool_choice.allowed_tools.tools[1]"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]}, "tools[0].function.strict"),
        ({"tools": [tool("f"), {"type": "function", "function": {"name": "f", "parameters": []}}]},
         "tools[1].function.parameters"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_choices_are_refused_by_name(server: AppServer, fields: dict[str, Any], param: str) -> None:
    refuse(server.post(CHAT, {"messages": HI, **fields}), param=param)


def test_a_call_cannot_be_demanded_where_calls_stay_text() -> None:
    from qanat.config.engine_config import ServerOptions

    with serving(ServerOptions(tool_call_parser="none")) as server:
        for choice in ("required", NAMED):
            error = refuse(
                server.post(CHAT, {"messages": HI, "tools": TOOLS, "tool_choice": choice}),
                param="tool_choice",
            )
            assert "--tool-call-parser" in error["message"]


class _Counted(dict[str, Any]):
    """A function whose looks at its name are counted."""

    num_looks = 0

    def __getitem__(self, key: str) -> Any:
        _Counted.num_looks += 1
        return super().__getitem__(key)


def test_a_choice_among_many_tools_costs_in_proportion_to_their_number() -> None:
    names = [f"f{i}" for i in range(600)]
    tools = [{"type": "function", "function": _Counted(name=name)} for name in names]
    _Counted.num_looks = 0
    use = tool_use(tools, allowed("required", *names[::2]))
    assert [tool["function"]["name"] for tool in use.offered or ()] == names[::2]
    assert _Counted.num_looks < 10 * len(names)  # each with each would be 180,000


def test_a_function_that_is_not_there_is_told_without_a_list_of_all_that_are() -> None:
    tools = [tool(f"function_{i}") for i in range(500)]
    with pytest.raises(InvalidRequestError, match="function_0, .* and 490 more") as caught:
        tool_use(tools, {"type": "function", "function": {"name": "x" * 100_000}})
    assert len(caught.value.message) < 1000


def test_more_tools_than_anybody_needs_are_refused(server: AppServer) -> None:
    tools = [tool(f"f{i}") for i in range(MAX_TOOLS + 1)]
    for choice in (None, "none", "required"):
        body = {"messages": HI, "max_tokens": 1, "tools": tools, "tool_choice": choice}
        error = refuse(server.post(CHAT, body), param="tools")
        assert str(MAX_TOOLS) in error["message"].replace(",", "")
    names = [f"f{i}" for i in range(5)]
    many = allowed("auto", *(names * MAX_TOOLS))
    body = {"messages": HI, "tools": tools[:5], "tool_choice": many}
    refuse(server.post(CHAT, body), param="tool_choice.allowed_tools.tools")
    tool_use(tools[:MAX_TOOLS], "required")
