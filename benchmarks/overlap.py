"""What overlapped scheduling gains: tokens per second of the engine with its core process, off and on by turns.

    python benchmarks/overlap.py demo                                the demo model
    python benchmarks/overlap.py Qwen3.5-0.8B                        a published shape, or a config.json: random weights
    python benchmarks/overlap.py demo --batches 1 8 64 --num-threads 2 --rounds 9

Both engines live at the same time and work by turns. Requests come together and run to a fixed length; the gain is
the median over the rounds of (tokens/s on) / (tokens/s off), beside their spread. The time to the first token is that
of one more request, which comes while the others decode.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

from qanat.bench.shapes import prepared_model
from qanat.config.engine_config import EngineConfig
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine

PROMPT_TOKENS = 32


def wishes(arguments: argparse.Namespace, is_overlapped: bool) -> EngineConfig:
    """The demo model, or random weights of a shape."""
    return EngineConfig(
        model=arguments.model,
        quantization=arguments.quantization,
        max_num_seqs=1 + max(arguments.batches),
        max_model_len=PROMPT_TOKENS + arguments.steps + 64,
        num_threads=arguments.num_threads,
        enable_prefix_caching=False,
        async_scheduling=is_overlapped,
    )


async def open_engine(arguments: argparse.Namespace, is_overlapped: bool) -> AsyncEngine:
    """Starts one of the two."""
    with prepared_model(wishes(arguments, is_overlapped)) as known:
        return await AsyncEngine.create(known)


async def first_token_s(engine: AsyncEngine, name: int, num_tokens: int) -> tuple[float, float]:
    """When a request was sent and when its first token came, on the clock of `time.perf_counter`; runs to its end."""
    prompt = [5 + (name * 7 + place) % 200 for place in range(PROMPT_TOKENS)]
    sampling = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    start_s, first_s = time.perf_counter(), 0.0
    async for event in engine.generate(prompt, sampling):
        if event.token_ids and not first_s:
            first_s = time.perf_counter()
    return start_s, first_s


async def measure(engine: AsyncEngine, batch: int, steps: int) -> tuple[float, float]:
    """Tokens per second, and the seconds until the first token of one that comes later."""
    start_s = time.perf_counter()
    calls = [asyncio.create_task(first_token_s(engine, name, steps)) for name in range(batch)]
    await asyncio.gather(*calls)
    rate = batch * steps / (time.perf_counter() - start_s)
    calls = [asyncio.create_task(first_token_s(engine, name, steps)) for name in range(batch)]
    await asyncio.sleep(0.05)
    sent_s, first_s = await first_token_s(engine, batch, 1)
    await asyncio.gather(*calls)
    return rate, first_s - sent_s


async def compare(arguments: argparse.Namespace) -> None:
    """Prints the table as Markdown."""
    engines = [await open_engine(arguments, is_overlapped) for is_overlapped in (False, True)]
    sys.stdout.write(
        "| batch | off, tokens/s | on, tokens/s | gain | of the rounds | first token off, ms | on, ms |\n"
    )
    sys.stdout.write("| --- | --- | --- | --- | --- | --- | --- |\n")
    for batch in arguments.batches:
        rates: list[list[float]] = [[], []]
        firsts: list[list[float]] = [[], []]
        for number in range(1 + arguments.rounds):
            for place, engine in enumerate(engines):
                rate, first = await measure(engine, batch, arguments.steps)
                if number:  # the first round warms up
                    rates[place].append(rate)
                    firsts[place].append(first)
        gains = sorted(on / off for off, on in zip(*rates, strict=True))
        off, on = (statistics.median(one) for one in rates)
        first_off, first_on = (1e3 * statistics.median(one) for one in firsts)
        sys.stdout.write(
            f"| {batch} | {off:,.0f} | {on:,.0f} | {statistics.median(gains):.3f} | {gains[0]:.3f} to {gains[-1]:.3f} "
            f"| {first_off:.2f} | {first_on:.2f} |\n"
        )
        sys.stdout.flush()
    for engine in engines:
        await engine.shutdown()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", help="demo, name of a published model, a folder with a config.json, or such a file"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=300, help="output tokens of each request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--num-threads", type=int, default=None)
    parser.add_argument("--quantization", default=None, help="w8a8 or w4a8, made of the random weights")
    asyncio.run(compare(parser.parse_args()))


if __name__ == "__main__":
    main()
