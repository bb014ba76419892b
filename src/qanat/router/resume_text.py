"""Going on with a stream of an engine that cannot resume: from the text that the client has.

The text is tokenized again and penalties do not see it, so what follows may differ from what would have followed; the
stream says so with a comment. Where the text alone does not say where the answer stands, nothing is continued.
"""

from __future__ import annotations

from typing import Any

import msgspec

from qanat.router.journal import ChoiceSoFar, Journal
from qanat.router.model import Call
from qanat.router.resume_qanat import is_prompt_list, num_choices_of, remaining_timeout, wants_usage_chunk

MARK = b": x-qanat-router: continued=text\n\n"
"""A comment of the event stream; clients' libraries pass over it."""

_FORMS = (
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structural_tag",
)
_DEFAULT_COMPLETION_TOKENS = 16


class TextResumer:
    """What an engine is asked for after a break.

    Args:
        call: the client's request.
        journal: of its stream.
    """

    def __init__(self, call: Call, journal: Journal) -> None:
        self._call = call
        self._fields = call.fields or {}
        self._journal = journal

    @property
    def is_ended(self) -> bool:
        """The client has all that it is to have, but for the token counts and the mark of the end."""
        return self._journal.has_ended(num_choices_of(self._call))

    def lost_usage(self) -> bytes:
        """The chunk with the token counts, if it is due and they are known; for a stream that broke before it came."""
        journal = self._journal
        if journal.has_usage_chunk or journal.usage is None or not wants_usage_chunk(self._fields):
            return b""
        chunk = {
            "id": journal.id,
            "object": "chat.completion.chunk" if "messages" in self._fields else "text_completion",
            "created": journal.created,
            "model": journal.model,
            "choices": [],
            "usage": journal.usage,
        }
        return b"data: %b\n\n" % msgspec.json.encode(chunk)

    @property
    def is_fresh(self) -> bool:
        """Nothing was sent, so that the request can simply be sent again."""
        return self._journal.is_fresh

    def refusal(self) -> str:
        """Why a break of the stream cannot be mended; empty if it can."""
        return self.request_refusal() or self._refusal_so_far()

    def request_refusal(self) -> str:
        """Why no break of a stream of this request could be mended once text was sent; empty if some could."""
        fields = self._fields
        if num_choices_of(self._call) > 1 or (fields.get("best_of") or 1) > 1:
            return "several choices were asked for"
        if fields.get("logprobs") not in (None, False) or fields.get("prompt_logprobs") is not None:
            return "log-probabilities were asked for"
        form = fields.get("response_format")
        is_form = isinstance(form, dict) and form.get("type") not in (None, "text")
        if is_form or any(fields.get(name) is not None for name in _FORMS):
            return "the answer must have a form, which cannot be entered in its middle"
        if "messages" not in fields and not isinstance(self._prompt(), str):
            return "the prompt is given as token ids"
        if fields.get("return_token_ids"):
            return "token ids were asked for"
        if fields.get("tool_choice") not in (None, "auto", "none"):
            return "a tool call is required"
        return ""

    def _refusal_so_far(self) -> str:
        so_far = self._choice()
        if so_far.has_calls:
            return "a tool call was sent in part"
        if so_far.has_reasoning:
            return "reasoning was sent, and the text alone cannot say where it stands"
        if self._fields.get("echo") and not so_far.text.startswith(str(self._prompt())):
            return "the echo of the prompt was sent in part"
        if any(limit <= so_far.num_told for limit in self._limits().values()):
            return "all tokens that were asked for have come, and only the end is missing"
        return ""

    def _limits(self) -> dict[str, int]:
        """Bounds of the output, by the names that the request has for them."""
        names = ("max_tokens", "max_completion_tokens")
        given = {name: self._fields[name] for name in names if isinstance(self._fields.get(name), int)}
        return given if given or "messages" in self._fields else {"max_tokens": _DEFAULT_COMPLETION_TOKENS}

    def _choice(self) -> ChoiceSoFar:
        return self._journal.choices.get(0) or ChoiceSoFar()

    def _prompt(self) -> Any:
        prompt = self._fields.get("prompt")
        return prompt[0] if is_prompt_list(prompt) and len(prompt) == 1 else prompt

    def changes(self, elapsed_s: float) -> dict[str, Any]:
        """To the request's body, so that the answer goes on after the text that was sent."""
        changes = remaining_timeout(self._fields, elapsed_s)
        if self.is_fresh:
            return changes
        text = self._choice().text
        if "messages" in self._fields:
            changes.update(_with_final_message(self._fields, text))
        elif self._fields.get("echo"):
            changes.update(prompt=text, echo=False)
        else:
            changes["prompt"] = str(self._prompt()) + text
        return {**changes, **self._reduced_bounds()}

    def _reduced_bounds(self) -> dict[str, Any]:
        done = self._choice().num_told
        changes: dict[str, Any] = {name: limit - done for name, limit in self._limits().items()}
        if isinstance(self._fields.get("min_tokens"), int):
            changes["min_tokens"] = max(self._fields["min_tokens"] - done, 0)
        return changes


def _with_final_message(fields: dict[str, Any], text: str) -> dict[str, Any]:
    messages = list(fields["messages"])
    if fields.get("continue_final_message") and messages and isinstance(messages[-1].get("content"), str):
        messages[-1] = {**messages[-1], "content": messages[-1]["content"] + text}
    else:
        messages.append({"role": "assistant", "content": text})
    return {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
