import jinja2
import pytest
from demokit import rendering
from demokit.mixture import training_items
from demokit.rendering import completion_of, prompt_of, render
from demokit.tools import TOOLS

USER = {"role": "user", "content": "Hi"}
CALL = {
    "role": "assistant",
    "content": "Wait.",
    "reasoning_content": "call it",
    "tool_calls": [
        {
            "function": {
                "name": "f",
                "arguments": {"text": "a\nb", "count": 2, "flag": True, "list": [1, "x"]},
            }
        },
        {"function": {"name": "g", "arguments": {}}},
    ],
}
CALL_TEXT = (
    "<tool_call>\n<function=f>\n<parameter=text>\na\nb\n</parameter>\n<parameter=count>\n2\n</parameter>\n"
    "<parameter=flag>\ntrue\n</parameter>\n"
    '<parameter=list>\n[1, "x"]\n</parameter>\n</function>\n</tool_call>\n'
    "<tool_call>\n<function=g>\n</function>\n</tool_call>"
)


def turn(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def test_generation_prompt_opens_the_think_block() -> None:
    assert render([USER]) == turn("user", "Hi")
    assert (
        render([USER], add_generation_prompt=True) == turn("user", "Hi") + "<|im_start|>assistant\n<think>\n"
    )
    assert render([USER], add_generation_prompt=True, enable_thinking=True).endswith("assistant\n<think>\n")


def test_thinking_off_closes_it_at_once() -> None:
    text = render([USER], add_generation_prompt=True, enable_thinking=False)
    assert text == turn("user", "Hi") + "<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_system_text_and_trimming() -> None:
    messages = [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "\n Hi "}]
    assert render(messages) == turn("system", "Be brief.") + turn("user", "Hi")
    messages[0]["role"] = "developer"
    assert render(messages).startswith("<|im_start|>system\nBe brief.")


def test_tools_come_before_the_system_text_in_one_turn() -> None:
    tool = TOOLS["get_weather"]
    text = render([{"role": "system", "content": "Be brief."}, USER], [tool])
    head, rest = text.split("<|im_end|>\n", 1)
    assert head.startswith("<|im_start|>system\n# Tools\n\n")
    assert '<tools>\n{"type": "function", "function": {"name": "get_weather", ' in head
    assert (
        head.index("</tools>")
        < head.index("<parameter=KEY>\nVALUE\n</parameter>")
        < head.index("\n\nBe brief.")
    )
    assert head.endswith("\n\nBe brief.") and rest == turn("user", "Hi")
    assert render([USER], [tool]).split("<|im_end|>")[0] == head.removesuffix("\n\nBe brief.")


def test_tool_definitions_keep_their_order_and_characters() -> None:
    tool = {"type": "function", "function": {"name": "b", "description": "<天气> & 'x'", "parameters": {}}}
    assert (
        '{"type": "function", "function": {"name": "b", "description": "<天气> & \'x\'", "parameters": {}}}'
        in render([USER], [tool])
    )


def test_calls_and_their_results() -> None:
    results = [
        {"role": "tool", "content": "r1"},
        {"role": "tool", "content": [{"type": "text", "text": "r2"}]},
    ]
    text = render([USER, CALL, *results], add_generation_prompt=True)
    assert text == (
        turn("user", "Hi")
        + turn("assistant", "<think>\ncall it\n</think>\n\nWait.\n\n" + CALL_TEXT)
        + "<|im_start|>user\n<tool_response>\nr1\n</tool_response>\n<tool_response>\nr2\n</tool_response><|im_end|>\n"
        + "<|im_start|>assistant\n<think>\n"
    )


def test_call_without_text_starts_at_once_and_may_lack_the_function_wrapper() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "g", "arguments": ""}]}
    assert render([USER, call]).endswith(
        "\n</think>\n\n<tool_call>\n<function=g>\n</function>\n</tool_call><|im_end|>\n"
    )


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_old_reasoning_is_dropped_unless_preserved(key: str) -> None:
    messages = [
        USER,
        {"role": "assistant", "content": "Hello", key: "greet"},
        {"role": "user", "content": "Bye"},
    ]
    assert render(messages) == turn("user", "Hi") + turn("assistant", "Hello") + turn("user", "Bye")
    kept = render(messages, preserve_thinking=True)
    assert kept == turn("user", "Hi") + turn("assistant", "<think>\ngreet\n</think>\n\nHello") + turn(
        "user", "Bye"
    )


def test_reasoning_inside_the_content_is_found() -> None:
    messages = [USER, {"role": "assistant", "content": "<think>\ngreet\n</think>\n\nHello"}]
    assert render(messages) == turn("user", "Hi") + turn("assistant", "<think>\ngreet\n</think>\n\nHello")
    assert render([*messages, USER]) == turn("user", "Hi") + turn("assistant", "Hello") + turn("user", "Hi")


def test_tool_result_sent_as_user_text_is_no_new_query() -> None:
    disguised = {"role": "user", "content": "<tool_response>\nr\n</tool_response>"}
    assert "call it" in render([USER, CALL, disguised])


def test_parts_with_media() -> None:
    content = [
        {"type": "text", "text": "See "},
        {"type": "image_url", "image_url": {"url": "x"}},
        {"type": "video"},
        {"type": "text", "text": "!"},
    ]
    message = {"role": "user", "content": content}
    image, video = (
        "<|vision_start|><|image_pad|><|vision_end|>",
        "<|vision_start|><|video_pad|><|vision_end|>",
    )
    assert render([message]) == turn("user", f"See {image}{video}!")
    again = render([message, message], add_vision_id=True)
    assert (
        f"See Picture 1: {image}Video 1: {video}!" in again
        and f"See Picture 2: {image}Video 2: {video}!" in again
    )


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "messages is empty"),
        ([{"role": "system", "content": "x"}], "no user query"),
        ([USER, {"role": "system", "content": "x"}], "must come first"),
        ([USER, {"role": "robot", "content": "x"}], "unknown role: robot"),
        ([{"role": "user", "content": [{"type": "sound"}]}], "content part"),
        ([{"role": "user", "content": 5}], "content must be"),
        (
            [USER, {"role": "assistant", "tool_calls": [{"name": "g", "arguments": "{}"}]}],
            "must be an object",
        ),
    ],
)
def test_refusals(messages: list[dict[str, object]], reason: str) -> None:
    with pytest.raises(jinja2.TemplateError, match=reason):
        render(messages)


def test_training_text_is_what_the_template_makes_of_the_whole_conversation() -> None:
    for item in training_items(seed=2, pool=0, count=600):
        if item.is_raw or item.task == "tool_call":
            continue
        reply = {
            "role": "assistant",
            "content": item.answer,
            "reasoning_content": item.reasoning if item.is_thinking else "",
        }
        assert render([*item.messages, reply], item.tools) == prompt_of(item) + completion_of(item) + "\n"


def test_training_calls_are_what_the_template_makes_of_them() -> None:
    import json

    calls = [item for item in training_items(seed=2, pool=1, count=1500) if item.task == "tool_call"]
    assert calls
    for item in calls:
        name = item.reasoning.removeprefix("call ")
        function = {"name": name, "arguments": json.loads(item.key.removeprefix("tool:" + name))}
        reply = {
            "role": "assistant",
            "content": "",
            "reasoning_content": item.reasoning if item.is_thinking else "",
            "tool_calls": [{"function": function}],
        }
        assert render([*item.messages, reply], item.tools) == prompt_of(item) + completion_of(item) + "\n"


def test_template_is_a_file_of_the_model() -> None:
    assert (rendering.MODEL_FOLDER / "chat_template.jinja").is_file()
