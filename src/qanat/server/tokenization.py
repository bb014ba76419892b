"""/tokenize and /detokenize: what the model is given for a text or a conversation, and what tokens say."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from qanat.core.errors import InvalidRequestError, QanatError
from qanat.server.caller import Caller
from qanat.server.continuation import ending_of
from qanat.server.decoding import decode_request
from qanat.server.encoding import PromptEncoder
from qanat.server.fields import CHAT_REFUSALS, RefusedField
from qanat.server.service import Service
from qanat.server.tools.choice import checked_tools

REFUSALS: dict[str, RefusedField] = {
    name: CHAT_REFUSALS[name] for name in ("chat_template", "mm_processor_kwargs", "media_io_kwargs")
}
"""Fields of vLLM's /tokenize that chat refuses too."""


class TokenizeRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Body of /tokenize.

    Attributes:
        model: one of the served names; the first where it is absent.
        prompt: a text, taken as it is. Either this or messages.
        messages: a conversation, rendered as /v1/chat/completions renders it.
        tools: with messages, functions to render.
        chat_template_kwargs: with messages, variables of the template.
        add_generation_prompt: with messages, end with what the template puts before a reply; true by default.
        continue_final_message: with messages, end within the final message, as for its continuation.
        return_token_strs: report each token's text too.
    """

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool = False


class TokenizeAnswer(msgspec.Struct, frozen=True):
    """Answer of /tokenize.

    Attributes:
        count: number of tokens.
        max_model_len: longest prompt and output together, in tokens.
        tokens: token ids.
        token_strs: text of each; a token that is not text by itself reads `bytes:` and its bytes.
    """

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Body of /detokenize: token ids, and one of the served names."""

    tokens: list[int]
    model: str | None = None


class DetokenizeAnswer(msgspec.Struct, frozen=True):
    """Answer of /detokenize: the text of all tokens together, special ones included."""

    prompt: str


class TokenEndpoints:
    """Handlers over one service. They have threads of their own, so that generation never waits for a long text."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tokenizer = service.engine.tokenizer
        self._max_model_len = service.engine.config.scheduler.max_model_len
        self._encoder = PromptEncoder(self._tokenizer, self._max_model_len)

    async def tokenize(self, body: bytes, caller: Caller) -> TokenizeAnswer:
        """POST /tokenize. A text longer than the window is counted, not refused: that is what one asks for.

        Raises:
            QanatError: the request is refused.
        """
        async with self._counted(caller):
            return await self._tokenize(body, caller)

    async def _tokenize(self, body: bytes, caller: Caller) -> TokenizeAnswer:
        request = decode_request(body, TokenizeRequest, REFUSALS)
        self._service.check_model(request.model, caller)
        if (request.prompt is None) == (request.messages is None):
            raise InvalidRequestError("Give either prompt or messages.", param="prompt")
        if request.prompt is not None:
            text = _checked_text(request, request.prompt)
            token_ids = await self._encoder.run(caller.name, len(text), self._tokenizer.encode, text)
        else:
            token_ids = await self._render(request, caller.name)
        texts = None
        if request.return_token_strs:
            texts = await self._encoder.run(caller.name, len(token_ids), self._spell, token_ids)
        return TokenizeAnswer(len(token_ids), self._max_model_len, token_ids, texts)

    async def detokenize(self, body: bytes, caller: Caller) -> DetokenizeAnswer:
        """POST /detokenize.

        Raises:
            QanatError: the request is refused; `param` names the first id that is out of range.
        """
        async with self._counted(caller):
            request = decode_request(body, DetokenizeRequest, {})
            self._service.check_model(request.model, caller)
            tokens = request.tokens
            text = await self._encoder.run(caller.name, len(tokens), self._decode, tokens)
            return DetokenizeAnswer(text)

    def close(self) -> None:
        """Ends the threads."""
        self._encoder.close()

    @contextlib.asynccontextmanager
    async def _counted(self, caller: Caller) -> AsyncIterator[None]:
        """The request counts like one that generates, but for the sequences under way."""
        desk = self._service.desk
        try:
            async with desk.lease(caller, 0):
                yield
        except QanatError as error:
            desk.refuse(caller, error)
            raise

    def _spell(self, token_ids: list[int]) -> list[str]:
        return [_spelled(self._tokenizer.token_bytes(token_id)) for token_id in token_ids]

    def _decode(self, token_ids: list[int]) -> str:
        config = self._service.engine.config
        vocab_size = config.num_valid_token_ids or config.model.vocab_size
        for position, token_id in enumerate(token_ids):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequestError(
                    f"tokens[{position}] is token id {token_id}; ids run from 0 to {vocab_size - 1}.",
                    param=f"tokens[{position}]",
                )
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)

    async def _render(self, request: TokenizeRequest, owner: str) -> list[int]:
        tools = checked_tools(request.tools)
        ending = ending_of(request.add_generation_prompt, bool(request.continue_final_message))
        renderer = self._service.renderer
        variables = request.chat_template_kwargs
        return (await renderer.render(request.messages or [], tools, variables, ending, owner)).token_ids


def _checked_text(request: TokenizeRequest, prompt: str) -> str:
    """The prompt, if no field says something about messages that are not there."""
    for name in ("tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"):
        if getattr(request, name) is not None:
            raise InvalidRequestError(f"{name} only goes with messages.", param=name)
    return prompt


def _spelled(token_bytes: bytes) -> str:
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)
