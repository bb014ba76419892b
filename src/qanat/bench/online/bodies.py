"""Writes prompts as bodies of the API that is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qanat.bench.online.prompts.prompt import Prompt
from qanat.core.errors import ConfigError

ENDPOINTS = {"openai": "/v1/completions", "vllm": "/v1/completions", "openai-chat": "/v1/chat/completions"}
"""Path by backend."""
RUNNING_USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
FINAL_USAGE: Mapping[str, Any] = {"stream_options": {"include_usage": True}}
NO_USAGE: Mapping[str, Any] = {}
COUNTINGS = (RUNNING_USAGE, FINAL_USAGE, NO_USAGE)
"""How the server is asked for token counts, the best first."""


@dataclass(frozen=True)
class Api:
    """How a request is written.

    Attributes:
        backend: a key of `ENDPOINTS`.
        model: name in the request.
        sampling: fields that were asked for, such as temperature.
        ignores_eos: answers have the length that was asked for.
        is_streamed: answers come chunk by chunk.
        extra: more fields; they go before all others.
        counting: one of `COUNTINGS`.
    """

    backend: str
    model: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    ignores_eos: bool = False
    is_streamed: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    counting: Mapping[str, Any] = field(default_factory=lambda: RUNNING_USAGE)

    @property
    def is_chat(self) -> bool:
        """True if prompts are messages."""
        return self.backend == "openai-chat"

    def body(self, prompt: Prompt) -> dict[str, Any]:
        """The body of a first request."""
        if self.is_chat:
            return self.chat_body([{"role": "user", "content": prompt.text}], prompt.output_len)
        text: list[int] | str = prompt.token_ids if prompt.token_ids is not None else prompt.text
        return {"model": self.model, "prompt": text, "max_tokens": prompt.output_len, **self._rest()}

    def chat_body(self, messages: Sequence[Mapping[str, str]], output_len: int) -> dict[str, Any]:
        """The body of a chat's next turn."""
        return {
            "model": self.model,
            "messages": list(messages),
            "max_completion_tokens": output_len,
            **self._rest(),
        }

    def _rest(self) -> dict[str, Any]:
        fields: dict[str, Any] = {**self.sampling, "stream": self.is_streamed}
        if self.is_streamed:
            fields |= self.counting
        if self.ignores_eos:
            fields["ignore_eos"] = True
        return fields | dict(self.extra)


def endpoint_of(backend: str, endpoint: str | None) -> str:
    """The path for a backend.

    Raises:
        ConfigError: the given one is of another API.
    """
    wanted = ENDPOINTS[backend]
    if endpoint is None:
        return wanted
    ending = wanted.removeprefix("/v1")
    if not endpoint.rstrip("/").endswith(ending) or (backend != "openai-chat" and "chat" in endpoint):
        other = "openai" if backend == "openai-chat" else "openai-chat"
        raise ConfigError(
            f"--endpoint {endpoint} does not fit --backend {backend}, whose paths end with {ending}: leave it out, or "
            f"choose --backend {other}.",
            param="--endpoint",
        )
    return endpoint if endpoint.startswith("/") else f"/{endpoint}"
