"""Requests as people and programs send them, made at random: who shares what with whom, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

VOCABULARY = 100_000
REPLY_PROMPT = [1, 2, 3, 4]
"""What a chat template puts before a reply."""


@dataclass(frozen=True)
class Turn:
    """One request.

    Attributes:
        prompt: its tokens.
        output: what the model answers.
        boundaries: where the last user turn and the reply begin.
    """

    prompt: list[int]
    output: list[int]
    boundaries: list[int]


def shared_prefix(seed: int, num_requests: int = 300) -> list[Turn]:
    """Applications with a long system prompt each, some asked far more than others; every question is new."""
    rng = random.Random(seed)
    systems = [_tokens(rng, rng.randint(300, 3000)) for _ in range(12)]
    weights = [1.0 / (rank + 1) for rank in range(len(systems))]
    turns = []
    for _ in range(num_requests):
        (system,) = rng.choices(systems, weights)
        turns.append(_turn(system, _tokens(rng, rng.randint(30, 400)), _tokens(rng, rng.randint(50, 300))))
    return turns


def multi_turn(seed: int, num_conversations: int = 40) -> list[Turn]:
    """Conversations under one system prompt, some quick, some slow; half of them drop the thinking of earlier turns."""
    rng = random.Random(seed)
    system = _tokens(rng, 400)
    turns: list[tuple[float, Turn]] = []
    for _ in range(num_conversations):
        one = _Conversation(list(system), rng.randint(2, 14), rng.random() < 0.5)
        now, pause = rng.uniform(0, 100), rng.choice((1.0, 5.0, 20.0))
        while one.num_left:
            turns.append((now, one.next_turn(rng)))
            now += rng.expovariate(1 / pause)
    return [turn for _, turn in sorted(turns, key=lambda entry: entry[0])]


def agent_tree(seed: int, num_requests: int = 300) -> list[Turn]:
    """Agents side by side: every step repeats all before it and adds a tool's result, and steps are tried anew."""
    rng = random.Random(seed)
    tools = _tokens(rng, 1500)
    turns: list[Turn] = []
    agents = [[tools + _tokens(rng, rng.randint(100, 600))] for _ in range(8)]
    while len(turns) < num_requests:
        place = rng.randrange(len(agents))
        nodes = agents[place]
        # Mostly the newest step goes on; sometimes an earlier one is tried again.
        node = nodes[-1] if rng.random() < 0.65 else rng.choice(nodes)
        turn = _turn(node, _tokens(rng, rng.randint(40, 500)), _tokens(rng, rng.randint(40, 250)))
        turns.append(turn)
        nodes.append(turn.prompt + turn.output)
        if len(nodes[-1]) > 12_000 or rng.random() < 0.03:
            agents[place] = [tools + _tokens(rng, rng.randint(100, 600))]
    return turns


TRACES: dict[str, Callable[[int], list[Turn]]] = {
    "shared prefix": shared_prefix,
    "multi-turn": multi_turn,
    "agent tree": agent_tree,
}
"""By name; each is made from a seed."""


@dataclass
class _Conversation:
    """One user's: what has been said, how many turns are to come, and whether thinking is dropped."""

    history: list[int]
    num_left: int
    drops_thinking: bool
    thoughts: list[int] = field(default_factory=list)

    def next_turn(self, rng: random.Random) -> Turn:
        """The next question with all before it, and its answer."""
        self.num_left -= 1
        answer = _tokens(rng, rng.randint(40, 400))
        thinking = _tokens(rng, rng.randint(50, 500)) if self.drops_thinking else []
        turn = _turn(self.history, _tokens(rng, rng.randint(20, 300)), thinking + answer)
        self.history = (turn.prompt[: -len(REPLY_PROMPT)] if thinking else turn.prompt) + answer
        return turn


def _turn(before: list[int], question: list[int], output: list[int]) -> Turn:
    prompt = before + question + REPLY_PROMPT
    return Turn(prompt, output, [len(before), len(prompt) - len(REPLY_PROMPT)])


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(10, VOCABULARY) for _ in range(count)]
