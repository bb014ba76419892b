"""Token counts of an answer that several engines made: the prompt counts once, the output as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


class UsageSum:
    """For an engine whose prompt was the request's prompt with the text so far: its own counts tell neither apart.

    What it counts in total is right. How much of it is output is what it counts as output, plus the tokens that came
    before.

    Args:
        num_prior_tokens: output tokens before.
    """

    def __init__(self, num_prior_tokens: int) -> None:
        self._num_prior_tokens = num_prior_tokens

    def total(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's usage as one of the whole answer."""
        summed = dict(usage)
        completion = usage.get("completion_tokens")
        prompt = usage.get("prompt_tokens")
        if isinstance(completion, int) and isinstance(prompt, int):
            prior = min(self._num_prior_tokens, prompt)
            summed["completion_tokens"] = completion + prior
            summed["prompt_tokens"] = prompt - prior
        return summed


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Usage of two answers to different prompts, the details too."""
    result = dict(one)
    for name, value in other.items():
        before = result.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            result[name] = added(before, value)
        elif isinstance(value, int) and isinstance(before, int):
            result[name] = before + value
        elif before is None:
            result[name] = value
    return result
