"""What speculation gains or costs: output rate and time to the first token, adaptive, with a fixed length, and without.

    python benchmarks/spec_decode.py demo --method mtp
    python benchmarks/spec_decode.py demo --method ngram --drafts 4
    python benchmarks/spec_decode.py Qwen3.5-0.8B --quantization w8a8 --loads 1 4   a published shape: random weights
    python benchmarks/spec_decode.py path/to/config.json --drafts 3 --right 0.8     any other

At each load, that many requests at once, the modes run by turns in one process; shown are medians of the rounds, rates
as ratios to plain decoding of the same round. The rate is that of output behind the first token: the time of the same
requests with one token each is taken off. A shape's drafts come from a script that knows what plain decoding
puts out and is right with a given probability, so that cost is measured apart from a layer's training.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from qanat import LLM, SamplingParams
from qanat.bench.shapes import DEMO, prepared_model
from qanat.config.engine_config import EngineConfig
from qanat.core.batch import ScheduledBatch
from qanat.worker import worker
from qanat.worker.batch_inputs import RowWork
from qanat.worker.drafters.base import Drafter
from qanat.worker.row_state import RowTable

QUESTIONS = (
    "What is 417 + 385?",
    "Sort these words: pear apple fig.",
    "Subtract 99 from 184.",
    "Sort in descending order: 45, 130, 7",
    "Convert to JSON: name: Alice, age: 30",
    "Reverse the word storm.",
    "What is 905 - 78?",
)
PROMPT_TOKENS = 32
PLAIN, FIXED, ADAPTIVE = "off", "fixed", "adaptive"


@dataclass
class ScriptedDrafter:
    """Drafts what plain decoding has put out, each token right with a probability.

    Attributes:
        outputs: tokens behind each prompt.
        share_right: that probability.
        vocab_size: a wrong draft is any other token.
    """

    outputs: Mapping[tuple[int, ...], Sequence[int]]
    share_right: float
    vocab_size: int
    chance: random.Random = field(default_factory=lambda: random.Random(5))
    capture_s: float = 0.0
    ring: None = None

    def begin(self, batch: ScheduledBatch) -> None:
        """Nothing to note."""

    def pause(self) -> None:
        """Nothing is kept."""

    def propose(self, works: Sequence[RowWork], max_drafts: Sequence[int]) -> list[list[int]]:
        """See `Drafter`."""
        return [
            self._drafts(work, most) if most else [] for work, most in zip(works, max_drafts, strict=True)
        ]

    def observe(self, works: Sequence[RowWork], hidden: Tensor, taps: Sequence[Tensor]) -> None:
        """Nothing to learn."""

    def _drafts(self, work: RowWork, most: int) -> list[int]:
        num_prompt = work.state.num_prompt_tokens
        known = self.outputs.get(tuple(work.state.tokens(0, num_prompt).tolist()), ())
        start = work.state.num_tokens - num_prompt
        return [self._maybe(token) for token in known[start : start + most]]

    def _maybe(self, token: int) -> int:
        return token if self.chance.random() < self.share_right else (token + 1) % self.vocab_size


Run = Callable[[LLM, int, int], int]
"""Serves so many requests at once with at most so many tokens each; returns how many tokens came out."""


def chats(model: LLM, load: int, max_tokens: int) -> int:
    """Questions that the demo model can answer, to their ends; a load of one asks all of them in turn."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    conversations = [
        [{"role": "user", "content": QUESTIONS[i % len(QUESTIONS)]}] for i in range(max(load, len(QUESTIONS)))
    ]
    groups = [conversations[i : i + load] for i in range(0, len(conversations), load)]
    return sum(len(one.outputs[0].token_ids) for own in groups for one in model.chat(own, params))


def random_prompts(load: int) -> list[list[int]]:
    """One for each request, always the same."""
    return [[5 + (row * 7 + i * (row + 3)) % 900 for i in range(PROMPT_TOKENS)] for row in range(load)]


def continuations(model: LLM, load: int, max_tokens: int) -> int:
    """Of random prompts, all of the same length."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return sum(len(one.outputs[0].token_ids) for one in model.generate(random_prompts(load), params))


def open_demo(wish: argparse.Namespace) -> dict[str, LLM]:
    """The demo model in each mode."""
    method = {"method": wish.method, "num_speculative_tokens": wish.drafts, "prompt_lookup_min": 2}
    return {name: open_model(wish, own) for name, own in modes(method).items()}


def open_shape(wish: argparse.Namespace) -> dict[str, LLM]:
    """Random weights of a shape, with drafts from a script."""
    outputs: dict[tuple[int, ...], Sequence[int]] = {}
    made_by = worker.drafter_maker

    def scripted(*_: Any) -> Callable[[RowTable], Drafter]:
        return lambda table: ScriptedDrafter(outputs, wish.right, 900)

    method = {"method": "ngram", "num_speculative_tokens": wish.drafts}
    models: dict[str, LLM] = {}
    for name, own in modes(method).items():
        worker.drafter_maker = made_by if own is None else scripted
        models[name] = open_model(wish, own)
    worker.drafter_maker = made_by
    params = SamplingParams(temperature=0, max_tokens=wish.tokens, ignore_eos=True)
    for one in models[PLAIN].generate(random_prompts(max(wish.loads)), params):
        outputs[tuple(one.prompt_token_ids)] = one.outputs[0].token_ids
    return models


def modes(method: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    """The speculative config of each mode."""
    return {PLAIN: None, FIXED: {**method, "adaptive": False}, ADAPTIVE: method}


def open_model(wish: argparse.Namespace, method: dict[str, Any] | None) -> LLM:
    """A model with room for the largest load; prefixes are computed each time."""
    wishes = EngineConfig(
        model=wish.model,
        quantization=wish.quantization,
        max_model_len=512,
        max_num_seqs=max(wish.loads),
        num_threads=wish.num_threads,
        enable_prefix_caching=False,
        speculative_config=method,
    )
    with prepared_model(wishes) as known:
        return LLM.of(known)


def timed(run: Run, model: LLM, load: int, max_tokens: int) -> tuple[int, float]:
    """(tokens, seconds)."""
    start_s = time.perf_counter()
    num_tokens = run(model, load, max_tokens)
    return num_tokens, time.perf_counter() - start_s


def measure(models: dict[str, LLM], run: Run, load: int, wish: argparse.Namespace) -> None:
    """Prints a line: rate without drafts, then ratios of rate and of time to the first token."""
    rates: dict[str, list[float]] = {name: [] for name in models}
    firsts: dict[str, list[float]] = {name: [] for name in models}
    for index in range(wish.warmups + wish.rounds):
        for name, model in models.items():
            num_firsts, first_s = timed(run, model, load, 1)
            num_tokens, spent_s = timed(run, model, load, wish.tokens)
            if index >= wish.warmups:
                rates[name].append((num_tokens - num_firsts) / (spent_s - first_s))
                firsts[name].append(first_s)
    cells = [f"{load}", f"{statistics.median(rates[PLAIN]):,.0f}"]
    for table in (rates, firsts):
        for name in (FIXED, ADAPTIVE):
            cells.append(
                f"{statistics.median(b / a for a, b in zip(table[PLAIN], table[name], strict=True)):.2f}"
            )
    sys.stdout.write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()


def main() -> None:
    """Prints the table as Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", help="demo, name of a published model, a folder with a config.json, or such a file"
    )
    parser.add_argument("--method", default="mtp", choices=("mtp", "ngram"), help="of the demo model")
    parser.add_argument("--drafts", type=int, default=3)
    parser.add_argument("--right", type=float, default=0.8, help="probability of a scripted draft")
    parser.add_argument("--loads", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of an answer")
    parser.add_argument("--warmups", type=int, default=4, help="rounds that capture graphs and find lengths")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-threads", type=int, default=None)
    parser.add_argument("--quantization", default=None, help="w8a8 or w4a8, made of the random weights")
    wish = parser.parse_args()
    is_demo = wish.model == DEMO
    models = open_demo(wish) if is_demo else open_shape(wish)
    sys.stdout.write(
        "| load | plain, tokens/s | fixed | adaptive | first token, fixed | first token, adaptive |\n"
    )
    sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
    for load in wish.loads:
        measure(models, chats if is_demo else continuations, load, wish)
    for name in (FIXED, ADAPTIVE):
        sys.stdout.write(f"{name}: {models[name].speculation_counts()}\n")


if __name__ == "__main__":
    main()
