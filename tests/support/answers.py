"""Puts streamed answers together again, to be compared with whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Answer:
    """One choice, however it was sent."""

    text: str = ""
    reasoning: str = ""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    reasoning_tokens: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None


def whole_chat(body: dict[str, Any]) -> list[Answer]:
    """The choices of an answer in one piece."""
    return [
        Answer(
            choice["message"]["content"] or "",
            choice["message"]["reasoning_content"] or "",
            (choice["logprobs"] or {}).get("content", []),
            (choice["logprobs"] or {}).get("reasoning", []),
            choice["finish_reason"],
            choice["stop_reason"],
        )
        for choice in sorted(body["choices"], key=lambda choice: choice["index"])
    ]


def streamed_chat(chunks: Sequence[dict[str, Any]]) -> list[Answer]:
    """The choices of a stream; checks that nothing follows a choice's end."""
    answers: dict[int, Answer] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            answer = answers.setdefault(choice["index"], Answer())
            assert answer.finish_reason is None, "a chunk after the end of its choice"
            delta, logprobs = choice["delta"], choice["logprobs"] or {}
            assert delta.get("reasoning", "") == delta.get("reasoning_content", "")
            answer.text += delta.get("content", "")
            answer.reasoning += delta.get("reasoning_content", "")
            answer.tokens += logprobs.get("content", [])
            answer.reasoning_tokens += logprobs.get("reasoning", [])
            answer.finish_reason, answer.stop_reason = choice["finish_reason"], choice["stop_reason"]
    return [answers[index] for index in sorted(answers)]


def streamed_completions(chunks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices of a completion stream in the form of a whole answer."""
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for news in chunk["choices"]:
            choice = choices.setdefault(
                news["index"], {"index": news["index"], "text": "", "logprobs": None, "finish_reason": None}
            )
            assert choice["finish_reason"] is None, "a chunk after the end of its choice"
            choice["text"] += news["text"]
            if news["logprobs"] is not None:
                merged = choice["logprobs"] or {name: [] for name in news["logprobs"]}
                choice["logprobs"] = {
                    name: merged[name] + values for name, values in news["logprobs"].items()
                }
            choice["finish_reason"], choice["stop_reason"] = news["finish_reason"], news["stop_reason"]
    return [{**choices[index], "prompt_logprobs": None} for index in sorted(choices)]
