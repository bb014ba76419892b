"""Text of an item through the chat template that ships with the model."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .item import Item

MODEL_FOLDER = Path(__file__).resolve().parents[1] / "src" / "qanat_demo" / "model"
END_OF_TURN = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"


def _fail(text: str) -> str:
    raise jinja2.TemplateError(text)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@cache
def _template() -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _fail
    return environment.from_string((MODEL_FOLDER / "chat_template.jinja").read_text(encoding="utf-8"))


def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, **options: Any) -> str:
    """`messages` in the chat format; `options` are the template's variables. Raises jinja2.TemplateError."""
    return _template().render(messages=messages, tools=tools or None, **options)


def prompt_of(item: Item) -> str:
    """What the model is given: everything up to the place where it starts to write."""
    if item.is_raw:
        return ""
    return render(item.messages, item.tools, add_generation_prompt=True, enable_thinking=item.is_thinking)


def completion_of(item: Item) -> str:
    """What the model shall write, with the end token."""
    if item.is_raw:
        return item.answer + END_OF_TEXT
    thought = f"{item.reasoning}\n</think>\n\n" if item.is_thinking else ""
    return thought + item.answer + END_OF_TURN
