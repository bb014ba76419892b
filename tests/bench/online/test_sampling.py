"""Readings of the server's metrics during a run: bounded, cut down to what is wanted, and understood afterwards."""

from __future__ import annotations

import asyncio

import pytest

from qanat.bench.online.sampling import MAX_SAMPLES, MetricsSampler, own_client
from qanat.bench.online.target import Target
from qanat.deploy.prometheus import read_exposition
from qanat.deploy.verify.address import Address
from tests.support.server_process import free_port

SECOND_NS = 10**9


def exposition(number: int) -> str:
    """What a server says after so many seconds: 50 tokens and 2 requests a second, half of the drafts accepted."""
    return (
        "# HELP vllm:generation_tokens Tokens.\n"
        f'vllm:generation_tokens_total{{engine="0"}} {30 * number}\n'
        f'vllm:generation_tokens_total{{engine="1"}} {20 * number}\n'
        f"vllm:num_requests_running {number}\n"
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.25\n'
        f"vllm:request_queue_time_seconds_sum {0.01 * number}\n"
        f"vllm:request_queue_time_seconds_count {2 * number}\n"
        f'vllm:request_queue_time_seconds_bucket{{le="+Inf"}} {2 * number}\n'
        f"vllm:spec_decode_num_draft_tokens_total {10 * number}\n"
        f"vllm:spec_decode_num_accepted_tokens_total {5 * number}\n"
        f"other:generation_tokens_total {number}\n"
    )


async def sampler_with(num: int, interval_s: float = 1.0) -> MetricsSampler:
    target = Target(Address(False, "127.0.0.1", free_port(), ""), "/v1/completions")
    sampler = MetricsSampler(own_client(target, None), target, interval_s)
    for number in range(1, num + 1):
        sampler.keep(number * SECOND_NS, exposition(number).encode())
    return sampler


def test_a_timeline_has_what_grew_between_two_readings() -> None:
    sampler = asyncio.run(sampler_with(3))
    before, after = (read_exposition(exposition(number)) for number in (0, 4))
    found = sampler.timeline(0, 4 * SECOND_NS, before, after)
    assert found["times_s"] == [1, 2, 3, 4]
    assert found["series"] == {
        "running": [1, 2, 3, 4],
        "kv_cache_used_percent": [37.5] * 4,
        "output_tokens_per_s": [50] * 4,
        "queue_time_ms": pytest.approx([5] * 4),
        "acceptance_percent": [50] * 4,
    }
    assert sampler.output_rate == 50


def test_readings_that_stand_still_or_begin_again_have_no_ratio() -> None:
    sampler = asyncio.run(sampler_with(2))
    again = read_exposition(exposition(1))
    series = sampler.timeline(0, 3 * SECOND_NS, read_exposition(exposition(1)), again)["series"]
    assert series["queue_time_ms"] == [None, pytest.approx(5), None]
    assert series["output_tokens_per_s"] == [0, 50, None]


def test_long_runs_keep_few_readings_spread_over_all_of_it() -> None:
    sampler = asyncio.run(sampler_with(5 * MAX_SAMPLES))
    times = sampler.timeline(0, 0, read_exposition(exposition(0)), None)["times_s"]
    assert MAX_SAMPLES // 2 <= len(times) <= MAX_SAMPLES
    assert times[0] < 20
    assert times[-1] > 4.9 * MAX_SAMPLES


def test_a_server_that_is_gone_is_not_asked_for_ever() -> None:
    async def run() -> MetricsSampler:
        sampler = await sampler_with(0, interval_s=0.001)
        await asyncio.wait_for(sampler.run(), 30)
        return sampler

    assert asyncio.run(run()).num_failures == 3
