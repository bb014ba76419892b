"""The turns of a conversation after the first: each is sent with what was really answered before it.

They are the only answers that are read during the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qanat.bench.client.load import Planned
from qanat.bench.client.recording import Recording, Store
from qanat.bench.online.answer import read_answer
from qanat.bench.online.bodies import Api
from qanat.bench.online.prompts.prompt import Prompt
from qanat.bench.online.target import Target


class Conversations:
    """Continues each conversation when its answer is there.

    Args:
        prompts: with the turns that follow.
        api: how requests are written.
        target: where they go.
        store: has the answers.
        delay_s: between an answer and the next turn.
        request_id_prefix: of X-Request-Id.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        api: Api,
        target: Target,
        store: Store,
        delay_s: float,
        request_id_prefix: str,
    ) -> None:
        self._api = api
        self._target = target
        self._store = store
        self._delay_s = delay_s
        self._prefix = request_id_prefix
        self._left = {number: list(prompt.turns) for number, prompt in enumerate(prompts)}
        self._messages: dict[int, list[Mapping[str, str]]] = {
            number: [{"role": "user", "content": prompt.text}] for number, prompt in enumerate(prompts)
        }
        self._next_index = len(prompts)

    def follow(self, recording: Recording, now_s: float) -> Planned | None:
        """The next turn after an answer; None after the last one or a failure."""
        index = recording.index
        left, messages = self._left.pop(index), self._messages.pop(index)
        if not left:
            return None
        answer = read_answer(recording, self._store.read(recording), 0)
        if not answer.is_ok:
            return None
        text, output_len = left.pop(0)
        messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": text}]
        index, self._next_index = self._next_index, self._next_index + 1
        self._left[index], self._messages[index] = left, messages
        request = self._target.post(
            self._api.chat_body(messages, output_len), request_id=f"{self._prefix}{index}"
        )
        return Planned(index, now_s + self._delay_s, request)
