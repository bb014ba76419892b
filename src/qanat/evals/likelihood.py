"""Scores the texts of choices by the probability that the model gives them behind the question.

The server itself says which tokens a text is made of (`/tokenize`), and scores them as part of a prompt (`echo` with
`logprobs`), as Qanat and vLLM do. Where a choice begins is a matter of tokens, not of text: a tokenizer may join the
last sign of the question with the first of a choice. So all choices of an item are scored from the first token on in
which any of them differs from the question alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from qanat.evals.asking import COMPLETIONS, AskSettings
from qanat.evals.item import LETTERS, EvalItem
from qanat.evals.prompts import Examples, choice_texts
from qanat.evals.replies import MisfitError, Reply, reading
from qanat.evals.sending import Caller, Unanswered

TOKENIZE = "/tokenize"


class LikelihoodAsker:
    """Asks one server for the likelihood of each choice.

    Args:
        caller: of the server.
        settings: how items are asked; those of sampling mean nothing here.
        examples: that are shown before them.
    """

    def __init__(self, caller: Caller, settings: AskSettings, examples: Examples) -> None:
        self.settings = settings
        self._caller = caller
        self._examples = examples

    def body(self, item: EvalItem, sample: int = 0) -> dict[str, Any]:
        """What is sent for an item, the same for each sample, with the question in the place of the tokens."""
        prompt = self.settings.body(item, self._examples.of(item))["prompt"]
        return {
            "model": self.settings.model,
            "prompt": prompt,
            "max_tokens": 1,  # servers differ in whether they take 0
            "temperature": 0.0,
            "echo": True,
            "logprobs": 1,
            **self.settings.extra_body,
        }

    async def ask(self, item: EvalItem, sample: int = 0) -> Reply:
        """The log-probability of each choice, and the likeliest as the answer.

        Raises:
            Unanswered: there is none, after all tries.
            HopelessError: there will be none to any item.
        """
        body = self.body(item)
        question = body["prompt"]
        texts = [question, *(question + text for text in choice_texts(item))]
        alone, *whole = await asyncio.gather(*(self._tokens(text) for text in texts))
        start = min(_num_common(alone, ids) for ids in whole)
        if not start:
            raise Unanswered("no token stands before the choices, so nothing says how likely they are")
        answer = await self._caller.post(COMPLETIONS, {**body, "prompt": whole})
        try:
            sums, usage = read_sums(answer, whole, start)
        except MisfitError as error:
            raise Unanswered(self._caller.hide(str(error))) from None
        scores = dict(zip(LETTERS, sums, strict=False))
        best = max(range(len(sums)), key=sums.__getitem__)
        return Reply(item.choices[best], usage=usage, scores=scores)

    async def _tokens(self, text: str) -> list[int]:
        answer = await self._caller.post(TOKENIZE, {"model": self.settings.model, "prompt": text})
        try:
            with reading():
                return [int(one) for one in json.loads(answer)["tokens"]]
        except MisfitError as error:
            raise Unanswered(f"{TOKENIZE}: {self._caller.hide(str(error))}") from None


def read_sums(
    body: bytes, prompts: Sequence[Sequence[int]], start: int
) -> tuple[list[float], dict[str, Any]]:
    """Log-probability (nats) of each prompt's tokens from `start` on, and the usage, of an answer with echo.

    Args:
        body: of the answer, JSON.
        prompts: token ids that were sent.
        start: of the tokens that count.

    Raises:
        MisfitError: it has another shape, or no log-probabilities of the prompts.
    """
    with reading():
        value = json.loads(body)
        choices = sorted(value["choices"], key=lambda choice: choice["index"])
        if len(choices) != len(prompts):
            raise MisfitError(f"{len(choices)} choices for {len(prompts)} prompts")
        usage = {name: count for name, count in (value.get("usage") or {}).items() if name == "prompt_tokens"}
        return [
            _sum((choice.get("logprobs") or {}).get("token_logprobs") or (), len(prompt), start)
            for choice, prompt in zip(choices, prompts, strict=True)
        ], usage


def _sum(logprobs: Sequence[float | None], num_tokens: int, start: int) -> float:
    counted = [one for one in logprobs[start:num_tokens] if one is not None]
    if len(counted) != num_tokens - start:
        raise MisfitError(
            f"{len(counted)} log-probabilities for {num_tokens - start} tokens of the prompt: the server takes no "
            "notice of echo with logprobs"
        )
    return float(sum(counted))


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
