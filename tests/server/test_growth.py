"""Long answers cost in proportion to their length, and requests that are over leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

import pytest

from qanat.core.events import GenerationEvent
from qanat.core.outputs import RequestOutput
from qanat.core.request import Request
from qanat.core.sampling_params import SamplingParams
from qanat.engine.output_processor import OutputProcessor
from qanat.server.assembler import Assembler, ChatAssembler
from qanat.server.tags import ThinkTags
from qanat.server.tools.parser import CallFormat
from tests.server.tools.replies import TOKENIZER, assembler, tool
from tests.support.scripted_engine import ScriptedEngine, start_scripted_engine

NUM_TOKENS = 1_000
FACTOR = 8
MAX_RATIO = 3 * FACTOR
"""Between what is linear (FACTOR) and what is quadratic (its square)."""
NUM_TRIES = 3
WORDS = ["some", " words", ",", " and", "😊", "</"]
TOOLS = [tool("f", {"type": "object", "properties": {"s": {"type": "string"}}})]


BEGINNINGS = {
    "hermes": ["<tool_call>", '{"name": "f", "arguments": {"s": "'],
    "qwen3_xml": ["<tool_call>", "\n<function=f>\n<parameter=s>\n"],
}
"""After these the text of a tool's argument stands."""


def chat(kind: str) -> Assembler:
    if kind in BEGINNINGS:
        return assembler(CallFormat.HERMES if kind == "hermes" else CallFormat.XML, TOOLS)
    stops = ["never said", "some\n"] if kind == "stops" else []
    sampling = SamplingParams(max_tokens=None, stop=stops)
    return ChatAssembler(0, TOKENIZER, sampling, ThinkTags.of(TOKENIZER), kind == "reasoning")


def cpu_s(kind: str, num_tokens: int) -> float:
    """Seconds of this thread for so many tokens, one by one and with no look for garbage; the best of three."""
    words = WORDS if kind == "hermes" else [*WORDS, "\n", "\n"]
    token_ids = [TOKENIZER.piece_id(words[i % len(words)]) for i in range(num_tokens)]
    times_s = []
    for _ in range(3):
        push = pusher(kind)
        for piece in BEGINNINGS.get(kind, []):
            push(TOKENIZER.piece_id(piece))
        gc.disable()
        try:
            start_s = time.thread_time()
            for token_id in token_ids:
                push(token_id)
            times_s.append(time.thread_time() - start_s)
        finally:
            gc.enable()
    return min(times_s)


def pusher(kind: str) -> Callable[[int], object]:
    if kind == "completion":
        request = Request(
            request_id="r",
            prompt_token_ids=[1],
            sampling=SamplingParams(max_tokens=10**6, stop=["never said"]),
            seed=0,
        )
        processor = OutputProcessor(TOKENIZER, request)
        return lambda token_id: processor.process(RequestOutput(request_id="r", new_token_ids=[token_id]))
    reader = chat(kind)
    return lambda token_id: reader.push(GenerationEvent(token_ids=[token_id]))


@pytest.mark.parametrize("kind", ["completion", "answer", "stops", "reasoning", "hermes", "qwen3_xml"])
def test_perf_003_a_long_answer_costs_in_proportion_to_its_length(kind: str) -> None:
    # Neighbours on the machine may slow one measurement down, but not every one.
    ratios = (cpu_s(kind, FACTOR * NUM_TOKENS) / cpu_s(kind, NUM_TOKENS) for _ in range(NUM_TRIES))
    assert any(ratio < MAX_RATIO for ratio in ratios)


def test_perf_007_requests_that_are_over_leave_no_objects_behind() -> None:
    async def some(scripted: ScriptedEngine, numbers: range) -> int:
        """Runs requests with prompts of their own, every twentieth given up; returns how many objects live then."""
        for number in numbers:
            prompt = [number % 256, number // 256 % 256, *range(64)]
            stream = scripted.engine.generate(
                prompt, SamplingParams(max_tokens=2, ignore_eos=True), request_id=f"request-{number}"
            )
            async for _ in stream:
                if number % 20 == 0:
                    break
            await stream.aclose()  # type: ignore[attr-defined]
        while scripted.core.has_work:
            await asyncio.sleep(0)
        gc.collect()
        return len(gc.get_objects())

    async def main() -> tuple[int, int]:
        scripted = start_scripted_engine()
        scripted.say(["a", "b"])
        await some(scripted, range(200))
        try:
            return await some(scripted, range(200, 400)), await some(scripted, range(400, 1400))
        finally:
            await scripted.engine.shutdown()

    before, after = asyncio.run(main())
    assert after - before < 500  # a single object kept of each request would be 1000
