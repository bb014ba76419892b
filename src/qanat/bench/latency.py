"""How long one batch of equal requests takes, repeated: the definitions of `vllm bench latency`."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qanat.bench.bounds import Bound, decode_bound, prefill_bound
from qanat.bench.offline import Session, Tick, joined, with_limits
from qanat.bench.requests import MAX_RANDOM_ID, random_ids
from qanat.core.samples import Samples
from qanat.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from qanat.entrypoints.results import Generation
    from qanat.kernels.native.limits import Limits

PERCENTILES = (10, 25, 50, 75, 90, 99)


@dataclass(frozen=True)
class LatencyWish:
    """What is measured.

    Attributes:
        input_len, output_len: tokens of each request.
        batch_size: requests of a batch.
        num_warmups, num_iters: batches before, and those that count.
        num_choices: sequences for each request.
        temperature: of sampling; 0 takes the most likely token.
        is_detokenized: whether text is made of the tokens.
        seed: of prompts and sampling.
    """

    input_len: int
    output_len: int
    batch_size: int
    num_warmups: int
    num_iters: int
    num_choices: int = 1
    temperature: float = 1.0
    is_detokenized: bool = True
    seed: int = 0

    @property
    def num_iterations(self) -> int:
        """Batches in all."""
        return self.num_warmups + self.num_iters

    @property
    def sampling(self) -> SamplingParams:
        """Of every request: as many tokens as asked for, whatever they are."""
        return SamplingParams(
            n=self.num_choices,
            temperature=self.temperature,
            ignore_eos=True,
            max_tokens=self.output_len,
            detokenize=self.is_detokenized,
            seed=self.seed,
        )


@dataclass(frozen=True)
class Batch:
    """Times of one batch, in seconds.

    Attributes:
        latency_s: from the call until all is there.
        ttft_s: until the last request has its first token.
        tpot_s: between two tokens of a request, on average; 0 with one token of output.
    """

    latency_s: float
    ttft_s: float
    tpot_s: float


def run_latency(session: Session, wish: LatencyWish, tick: Tick) -> dict[str, Any]:
    """Runs the batches; the result has vLLM's keys, and ours beside them.

    Args:
        session: the model.
        wish: what is measured.
        tick: called after each batch.

    Raises:
        QanatError: the requests cannot be served.
    """
    source = random.Random(wish.seed)
    num_ids = min(session.num_ids, MAX_RANDOM_ID)
    prompts = [random_ids(wish.input_len, num_ids, source) for _ in range(wish.batch_size)]
    for _ in range(wish.num_warmups):
        time_batch(session, prompts, wish)
        tick()
    before = session.measure_limits()
    batches = []
    for _ in range(wish.num_iters):
        batches.append(time_batch(session, prompts, wish))
        tick()
    after = session.measure_limits()
    return with_limits(_result(session, wish, batches, joined(before, after)), joined(before, after))


def time_batch(session: Session, prompts: Sequence[list[int]], wish: LatencyWish) -> Batch:
    """One batch."""
    start = time.perf_counter()
    results: list[Generation] = session.llm.generate(list(prompts), wish.sampling)
    end = time.perf_counter()
    ttft_s = max(result.first_token_at for result in results) - start
    gaps = max(wish.output_len - 1, 1)
    spans = [(result.last_token_at - result.first_token_at) / gaps for result in results]
    return Batch(end - start, ttft_s, Samples.of(spans).mean if wish.output_len > 1 else 0.0)


def _result(
    session: Session, wish: LatencyWish, batches: Sequence[Batch], limits: Limits | None
) -> dict[str, Any]:
    latencies = Samples.of(batch.latency_s for batch in batches)
    ttft, tpot = Samples.of(batch.ttft_s for batch in batches), Samples.of(batch.tpot_s for batch in batches)
    num_sequences = wish.batch_size * wish.num_choices
    result: dict[str, Any] = {
        "avg_latency": latencies.mean,
        "latencies": list(latencies.values),
        "percentiles": {str(percent): latencies.percentile(percent) for percent in PERCENTILES},
        **session.facts(),
        "input_len": wish.input_len,
        "output_len": wish.output_len,
        "batch_size": wish.batch_size,
        "n": wish.num_choices,
        "latency_spread": latencies.spread,
        "median_ttft_s": ttft.median,
        "ttft_spread": ttft.spread,
        "prefill_tokens_per_s": wish.batch_size * wish.input_len / ttft.median,
    }
    if wish.output_len > 1:
        result |= {
            "median_tpot_s": tpot.median,
            "tpot_spread": tpot.spread,
            "decode_tokens_per_s": num_sequences / tpot.median,
        }
    if limits is not None:
        prefill = prefill_bound(session.llm, limits, wish.batch_size, wish.input_len)
        result["prefill_limit"] = _limit(prefill, ttft.median, wish.batch_size * wish.input_len)
        if wish.output_len > 1:
            context_len = wish.input_len + wish.output_len // 2
            decode = decode_bound(session.llm, limits, num_sequences, context_len)
            result["decode_limit"] = _limit(decode, tpot.median, num_sequences)
    return result


def _limit(least: Bound, measured_s: float, num_tokens: int) -> dict[str, Any]:
    return {
        "tokens_per_s": num_tokens / least.seconds,
        "share": least.seconds / measured_s,
        "binds": least.binds,
        "read_bytes": least.cost.total_bytes,
        "float_macs": least.cost.float_macs,
        "int8_macs": least.cost.int8_macs,
    }
