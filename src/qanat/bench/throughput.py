"""How many requests a model finishes that are all there at once: the definitions of `vllm bench throughput`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qanat.bench.bounds import decode_bound
from qanat.bench.offline import Session, joined, with_limits
from qanat.bench.requests import BenchRequest, num_tokens
from qanat.core.sampling_params import SamplingParams

if TYPE_CHECKING:
    from qanat.kernels.native.limits import Limits


@dataclass(frozen=True)
class ThroughputWish:
    """What is measured.

    Attributes:
        requests: at least one.
        num_warmups: requests, the first ones, that are run before and do not count.
        num_choices: sequences for each request.
        temperature: of sampling; 0 takes the most likely token.
        is_detokenized: whether text is made of the tokens.
        has_progress_bar: show finished prompts on the terminal.
    """

    requests: Sequence[BenchRequest]
    num_warmups: int = 0
    num_choices: int = 1
    temperature: float = 1.0
    is_detokenized: bool = True
    has_progress_bar: bool = False

    def sampling(self) -> list[SamplingParams]:
        """Of each request: as many tokens as it asks for, whatever they are."""
        return [
            SamplingParams(
                n=self.num_choices,
                temperature=self.temperature,
                ignore_eos=True,
                max_tokens=request.output_len,
                detokenize=self.is_detokenized,
                seed=index,
            )
            for index, request in enumerate(self.requests)
        ]


def run_throughput(session: Session, wish: ThroughputWish) -> dict[str, Any]:
    """Runs the requests; the result has vLLM's keys, and ours beside them.

    Args:
        session: the model.
        wish: what is measured.

    Raises:
        QanatError: a request cannot be served; nothing is measured.
    """
    prompts, sampling = [request.prompt_token_ids for request in wish.requests], wish.sampling()
    if wish.num_warmups:
        session.llm.generate(prompts[: wish.num_warmups], sampling[: wish.num_warmups])
    before = session.measure_limits()
    start = time.perf_counter()
    results = session.llm.generate(prompts, sampling, use_progress_bar=wish.has_progress_bar)
    elapsed_s = time.perf_counter() - start
    after = session.measure_limits()
    num_requests, num_input = len(wish.requests), num_tokens(wish.requests)
    num_output = sum(len(output.token_ids) for result in results for output in result.outputs)
    result: dict[str, Any] = {
        "elapsed_time": elapsed_s,
        "num_requests": num_requests,
        "total_num_tokens": num_input + num_output,
        "requests_per_second": num_requests / elapsed_s,
        "tokens_per_second": (num_input + num_output) / elapsed_s,
        **session.facts(),
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "output_tokens_per_second": num_output / elapsed_s,
        "n": wish.num_choices,
    }
    limits = joined(before, after)
    if limits is not None:
        mean_len = (num_input + num_output // (2 * wish.num_choices)) // num_requests
        result["decode_limit"] = _limit(session, limits, num_requests * wish.num_choices, mean_len)
    return with_limits(result, limits)


def _limit(session: Session, limits: Limits, num_sequences: int, mean_len: int) -> dict[str, Any]:
    """What decoding alone could reach with as many sequences at once as the scheduler lets run."""
    num_running = min(session.llm.config.scheduler.max_num_seqs, num_sequences)
    least = decode_bound(session.llm, limits, num_running, mean_len)
    return {
        "num_running": num_running,
        "tokens_per_s": num_running / least.seconds,
        "binds": least.binds,
        "read_bytes": least.cost.total_bytes,
    }
