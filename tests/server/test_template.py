"""The template sandbox, and the two templates that we bring ourselves."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from qanat.core.errors import ConfigError, InvalidRequestError
from qanat.server import template as template_module
from qanat.server.template import ChatTemplate

ROOT = Path(__file__).parents[2]
USER = {"role": "user", "content": "2+2?"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def own(name: str) -> ChatTemplate:
    return ChatTemplate(resources.files("qanat.server").joinpath("templates", f"{name}.jinja").read_text())


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def test_the_environment_is_the_one_templates_are_written_for() -> None:
    text = (
        "{%- for m in messages %}\n    {%- if loop.index0 == 1 %}{% break %}{% endif %}\n{{ m.content | tojson }}"
        "\n{%- endfor %}{{ bos_token }}{{ strftime_now('%Y') | length }}"
    )
    rendered = ChatTemplate(text, {"bos_token": "B"}).render([{"content": "<é'&>"}, {"content": "no"}])
    assert rendered == '"<é\'&>"B4'


def test_variables_of_one_rendering_go_before_the_checkpoints() -> None:
    template = ChatTemplate("{{ eos_token }}{{ add_generation_prompt }}", {"eos_token": "E"})
    assert template.render([USER]) == "ETrue"
    assert template.render([USER], variables={"eos_token": "x"}) == "xTrue"


@pytest.mark.parametrize("name", ["self", "messages", "args"])
def test_no_name_of_a_variable_breaks_the_rendering(name: str) -> None:
    assert ChatTemplate("{{ messages[0].content }}").render([USER], variables={name: "x"}) == "2+2?"


def test_small_repetitions_and_powers_are_allowed() -> None:
    assert ChatTemplate("{{ '-' * 3 }}{{ 2 * 3 }}{{ 2 ** 3 }}").render([USER]) == "---68"


def test_a_template_can_refuse() -> None:
    with pytest.raises(InvalidRequestError, match="refuses these messages: not so"):
        ChatTemplate("{{ raise_exception('not so') }}").render([USER])


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 'a' * 10000000000 }}",
        "{{ [0] * 10000000000 }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content.nothing.there }}",
        "{% for i in range(10000000) %}x{% endfor %}",
    ],
)
def test_the_sandbox_holds(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        ChatTemplate(text).render([USER])


def test_the_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_module, "MAX_RENDERED_CHARS", 1000)
    with pytest.raises(InvalidRequestError, match="too long"):
        ChatTemplate("{% for i in range(99999) %}xxxxxxxxxx{{ i }}{% endfor %}").render([USER])


def test_a_template_that_does_not_compile_is_the_operators_error() -> None:
    with pytest.raises(ConfigError, match="does not compile"):
        ChatTemplate("{% if %}")


def test_our_qwen3_5_template_is_the_demo_models() -> None:
    ours = ROOT / "src/qanat/server/templates/qwen3_5.jinja"
    demo = ROOT / "demo/src/qanat_demo/model/chat_template.jinja"
    assert ours.read_text() == demo.read_text()


def test_qwen3_thinking_is_left_to_the_model() -> None:
    assert own("qwen3").render([USER]) == "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"


def test_qwen3_thinking_off_closes_an_empty_block() -> None:
    rendered = own("qwen3").render([USER], variables={"enable_thinking": False})
    assert rendered.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_qwen3_system_text_comes_before_the_tools() -> None:
    rendered = own("qwen3").render([{"role": "system", "content": "Be brief."}, USER], TOOLS)
    system, _, rest = rendered.partition("<|im_end|>\n")
    assert system.startswith("<|im_start|>system\nBe brief.\n\n")
    assert '<tools>\n{"type": "function", "function": {"name": "f"' in system
    assert rest.startswith("<|im_start|>user\n2+2?")


def test_qwen3_calls_are_json_and_results_share_a_user_turn() -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call("f", {"a": "ü"}), call("g", {})]},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
    ]
    rendered = own("qwen3").render(messages, has_generation_prompt=False)
    assert rendered == (
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>\n{"name": "f", "arguments": {"a": "ü"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
    )


@pytest.mark.parametrize("name", ["qwen3", "qwen3_5"])
@pytest.mark.parametrize("form", ["field", "text"])
def test_old_reasoning_is_dropped_and_recent_reasoning_kept(name: str, form: str) -> None:
    def assistant(reasoning: str, content: str) -> dict[str, str]:
        if form == "field":
            return {"role": "assistant", "content": content, "reasoning_content": reasoning}
        return {"role": "assistant", "content": f"<think>\n{reasoning}\n</think>\n\n{content}"}

    messages = [USER, assistant("old", "4"), USER, assistant("recent", "5")]
    rendered = own(name).render(messages, has_generation_prompt=False)
    assert "old" not in rendered
    assert "<|im_start|>assistant\n4<|im_end|>" in rendered
    assert "<|im_start|>assistant\n<think>\nrecent\n</think>\n\n5<|im_end|>" in rendered


def test_qwen3_5_opens_the_block_in_the_prompt() -> None:
    template = own("qwen3_5")
    assert template.render([USER]).endswith("<|im_start|>assistant\n<think>\n")
    off = template.render([USER], variables={"enable_thinking": False})
    assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_qwen3_5_tools_come_before_the_system_text_and_calls_are_tags() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [call("f", {"city": "Oslo", "n": [1, True]})],
        },
        {"role": "tool", "content": "cold"},
    ]
    rendered = own("qwen3_5").render(messages, TOOLS)
    assert rendered.index("</tools>") < rendered.index("Be brief.") < rendered.index("2+2?")
    assert (
        "Let me see.\n\n<tool_call>\n<function=f>\n<parameter=city>\nOslo\n</parameter>\n"
        "<parameter=n>\n[1, true]\n</parameter>\n</function>\n</tool_call><|im_end|>"
    ) in rendered
    assert "<|im_start|>user\n<tool_response>\ncold\n</tool_response><|im_end|>" in rendered
