"""From messages to a prompt: text by the chat template, token ids, and where the reply begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from qanat.core.constraint import Thinking
from qanat.core.errors import ConfigError, InvalidRequestError
from qanat.engine.tokenizer import Tokenizer
from qanat.server.continuation import Ending, check_final_message, cut_at, marked, new_mark
from qanat.server.control_texts import ControlTexts
from qanat.server.encoding import MAX_INLINE_CHARS, PromptEncoder, num_chars_up_to
from qanat.server.messages import Message, normalise_messages
from qanat.server.tags import ThinkTags
from qanat.server.template import ChatTemplate

RESERVED_VARIABLES = frozenset(
    {"messages", "tools", "add_generation_prompt", "chat_template", "tokenize", "self"}
)
"""Names that requests cannot give to template variables: the server sets them, or jinja2 does."""
TURN_START = "<|im_start|>"
USER_ROLE = "user"
UNTHINKING_SIZES = (1024, 2048)
"""Hidden sizes of the dense Qwen3.5 models, 0.8B and 2B, whose own templates leave thinking off by default."""
_PROBE = "qanat-probe"


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt made from messages.

    Attributes:
        token_ids: the whole prompt.
        thinking: where the reply stands to the thinking when it begins.
        reply_start: offset of the part that the template added for the reply.
        last_user_start: offset of the last user turn; `reply_start` if none was found.
    """

    token_ids: list[int]
    thinking: Thinking
    reply_start: int
    last_user_start: int

    @property
    def boundaries(self) -> list[int]:
        """Where later prompts are likely to part from it: another question, or the same with a reply that differs."""
        return [self.last_user_start, self.reply_start]


class ChatRenderer:
    """Renders conversations with one template. Thread-safe.

    Args:
        template: the compiled template.
        tokenizer: the checkpoint's.
        encoder: tokenises, off the event loop where the text is long.
        default_variables: template variables of requests that do not set them.

    Raises:
        ConfigError: a default variable is not allowed.
    """

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        encoder: PromptEncoder,
        default_variables: Mapping[str, Any] | None = None,
    ) -> None:
        self._template = template
        self._encoder = encoder
        self._tags = ThinkTags.of(tokenizer)
        self._control_texts = ControlTexts(tokenizer)
        self._turn_start_id = tokenizer.token_id(TURN_START)
        self._user_ids = tokenizer.encode(USER_ROLE)
        _check_default_variables(default_variables)
        self._default_variables = dict(default_variables or {})
        self._reads_parts = self._probe_parts()
        self._takes_late_system = self._probe_late_system()

    async def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any] | None = None,
        ending: Ending = Ending.REPLY,
        owner: str = "",
    ) -> RenderedPrompt:
        """The prompt for the next assistant turn.

        Args:
            messages: as the client sent them.
            tools: definitions to render, or None.
            variables: the request's chat_template_kwargs.
            ending: how it is to end.
            owner: whose it is.

        Raises:
            InvalidRequestError: a message has the wrong shape, the template refuses the messages, a variable is not
                allowed, or the final message cannot be continued.
            ContextLengthError: the prompt is far longer than the window, or the tools alone are.
        """
        self._encoder.check_num_parts(len(messages), field="messages")

        def work() -> RenderedPrompt:
            return self.render_now(normalise_messages(messages), tools, variables, ending)

        return await self._encoder.run(owner, _num_chars(messages, tools, variables), work)

    def render_now(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any] | None = None,
        ending: Ending = Ending.REPLY,
    ) -> RenderedPrompt:
        """The same for callers without an event loop, from messages as `normalise_messages` returns them."""
        self._encoder.check_json_size(tools or (), field="tools")
        merged = self._merged(variables)
        (adapted, tools), seam = self._control_texts.seamed([self._adapt(messages), tools])

        def rendered(messages: list[Message], *, is_reply: bool) -> str:
            return self._template.render(messages, tools, variables=merged, has_generation_prompt=is_reply)

        if ending is Ending.CONTINUE:
            check_final_message(adapted)
            mark = new_mark()
            text = cut_at(rendered(marked(adapted, mark), is_reply=False), mark, adapted)
        else:
            text = rendered(adapted, is_reply=ending is Ending.REPLY)
        token_ids = self._encoder.encode(text, field="messages", seam=seam)
        history = rendered(adapted, is_reply=False) if ending is Ending.REPLY else text
        reply_ids = self._encoder.encode(text[len(history) :]) if text.startswith(history) else []
        if token_ids[len(token_ids) - len(reply_ids) :] != reply_ids:
            reply_ids = []  # a template without a clear boundary: nothing is known about the reply's beginning
        reply_start = len(token_ids) - len(reply_ids)
        thinking = Thinking.NONE
        if ending is not Ending.CONTINUE:
            thinking = self._thinking(reply_ids, is_off=merged.get("enable_thinking") is False)
        return RenderedPrompt(token_ids, thinking, reply_start, self._last_user_start(token_ids, reply_start))

    def _merged(self, variables: Mapping[str, Any] | None) -> dict[str, Any]:
        """The request's variables, checked, over the defaults."""
        fault = _fault_of(variables or {}, "chat_template_kwargs")
        if fault is not None:
            raise InvalidRequestError(fault[1], param=f"chat_template_kwargs.{fault[0]}")
        return {**self._default_variables, **(variables or {})}

    def _adapt(self, messages: Sequence[Message]) -> list[Message]:
        """Brings messages into the form that this very template can express."""
        adapted = list(messages)
        if not self._takes_late_system:
            adapted = _merge_system(adapted)
        if not self._reads_parts:
            adapted = [{**message, "content": _joined(message["content"])} for message in adapted]
        return adapted

    def _thinking(self, reply_ids: list[int], *, is_off: bool) -> Thinking:
        """What the beginning of the reply says; if it says nothing, the model may think unless told not to."""
        if self._tags is None:
            return Thinking.NONE
        for token_id in reversed(reply_ids):
            if token_id in (self._tags.start_id, self._tags.end_id):
                return Thinking.OPEN if token_id == self._tags.start_id else Thinking.NONE
        return Thinking.NONE if is_off else Thinking.OPTIONAL

    def _last_user_start(self, token_ids: list[int], reply_start: int) -> int:
        num_role_ids = len(self._user_ids)
        for position in range(reply_start - 1, -1, -1):
            if token_ids[position] == self._turn_start_id:
                if token_ids[position + 1 : position + 1 + num_role_ids] == self._user_ids:
                    return position
        return reply_start

    def _probe_parts(self) -> bool:
        """Whether the template reads content parts itself; if not, their texts are joined."""
        content = [{"type": "text", "text": _PROBE}]
        text = self._try([{"role": "user", "content": content}])
        return _PROBE in text and "{" not in text.partition(_PROBE)[0]

    def _probe_late_system(self) -> bool:
        """Whether the template renders system messages after the first turn; if not, they go into the first."""
        roles = ("system", "user", "system", "user")
        text = self._try([{"role": role, "content": f"{_PROBE}-{i}"} for i, role in enumerate(roles)])
        return all(f"{_PROBE}-{i}" in text for i in range(len(roles)))

    def _try(self, messages: list[Message]) -> str:
        try:
            return self._template.render(messages, variables=self._default_variables)
        except InvalidRequestError:
            return ""


def _fault_of(variables: Mapping[str, Any], where: str) -> tuple[str, str] | None:
    """The first variable that is not allowed, and what is wrong with it; None if all are."""
    for name in variables:
        if name in RESERVED_VARIABLES:
            return name, f"{where} must not set {name}: the server does."
    if not isinstance(variables.get("enable_thinking", True), bool):
        return "enable_thinking", f"{where}.enable_thinking must be true or false."
    return None


def _check_default_variables(variables: Mapping[str, Any] | None) -> None:
    flag = "--default-chat-template-kwargs"
    fault = _fault_of(variables or {}, flag)
    if fault is not None:
        raise ConfigError(fault[1], param=flag)


def check_chat_options(choice: str | None, default_variables: Mapping[str, Any] | None) -> None:
    """Finds what is wrong with the operator's template settings before a model is loaded.

    Args:
        choice: --chat-template: a file, or the template's text.
        default_variables: --default-chat-template-kwargs.

    Raises:
        ConfigError: the template cannot be read or does not compile, or a variable is not allowed.
    """
    _check_default_variables(default_variables)
    if choice is not None:
        ChatTemplate(_read_choice(choice))


def _num_chars(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    variables: Mapping[str, Any] | None,
) -> int:
    """How much there is to render, counted as far as it decides where that is done."""
    return num_chars_up_to(MAX_INLINE_CHARS, [messages, tools or (), variables or {}])


def _joined(content: str | list[dict[str, str]]) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _merge_system(messages: list[Message]) -> list[Message]:
    """One system message at the front, with the texts of all in order."""
    texts = [_joined(message["content"]) for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    text = "\n\n".join(part for part in texts if part)
    return [{"role": "system", "content": text}, *others] if texts else others


def load_template(
    choice: str | None, tokenizer: Tokenizer, model_family: str, hidden_size: int = 0
) -> ChatTemplate:
    """The template to use: the operator's, else the checkpoint's own, else ours for the model family.

    Args:
        choice: --chat-template: a file, or the template's text.
        tokenizer: brings the checkpoint's template and the spelling of special tokens.
        model_family: as in `ModelConfig`.
        hidden_size: likewise; it tells the small models, which think on request only.

    Raises:
        ConfigError: the file cannot be read, or the template does not compile.
    """
    if choice is not None:
        source = _read_choice(choice)
    elif tokenizer.chat_template is not None:
        source = tokenizer.chat_template
    else:
        name = "qwen3_5.jinja" if model_family.startswith("qwen3_5") else "qwen3.jinja"
        source = resources.files("qanat.server").joinpath("templates", name).read_text(encoding="utf-8")
        if model_family == "qwen3_5" and hidden_size in UNTHINKING_SIZES:
            return ChatTemplate(source, {**tokenizer.named_tokens, "enable_thinking": False})
    return ChatTemplate(source, tokenizer.named_tokens)


def _read_choice(choice: str) -> str:
    if "{{" in choice or "{%" in choice or "\n" in choice:
        return choice
    try:
        return Path(choice).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--chat-template {choice} cannot be read ({error}); give a file or the template's text.",
            param="--chat-template",
        ) from None
