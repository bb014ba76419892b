"""What the scheduler and the cache cost per step, without any model.

    python benchmarks/scheduler.py [--steps 2000] [--repeat 5] [--running 1 32 256] [--waiting 0 100000] [--overlapped]

Every running request decodes one token per step, takes a new block every 64 steps, and leaves the full one to the
index of prefixes; the waiting ones, each with a deadline and one of 100 owners, find no free row. The target is 1.5 us
per running request plus 50 us per step, whatever the number waiting. With --overlapped, each step is scheduled before
the one before is answered. Each figure is the median over the steps of the best of the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import deque

from qanat.cache.manager import HybridCacheManager
from qanat.cache.prefix_cache import PrefixRules
from qanat.config.resolved import SchedulerLimits
from qanat.core.batch import RowOutput, ScheduledBatch, StepOutput
from qanat.core.cache_spec import CacheRegion, CacheSpec
from qanat.core.request import Request
from qanat.core.sampling_params import SamplingParams
from qanat.core.timeouts import Timeouts
from qanat.scheduler.scheduler import Scheduler

BLOCK_SIZE = 64
NUM_PROMPT_TOKENS = 32
STEP_TARGET_US = 50.0
REQUEST_TARGET_US = 1.5
RUNNING = (1, 32, 256)
WAITING = (0, 1_000, 10_000, 100_000)
NUM_OWNERS = 100


def make_scheduler(num_running: int, num_waiting: int, num_steps: int, is_overlapped: bool) -> Scheduler:
    """A scheduler with all rows taken by requests that outlast the measurement, and a queue behind them."""
    spec = CacheSpec(
        block_size=BLOCK_SIZE,
        regions=(
            CacheRegion("kv_blocks", "block", 1, (2, BLOCK_SIZE, 1, 8), "float32", 2),
            CacheRegion("recurrent_state", "state", 1, (1, 8, 8), "float32", 0),
        ),
    )
    num_blocks = num_running * (spec.num_blocks_for(NUM_PROMPT_TOKENS + num_steps) + 3)
    limits = SchedulerLimits(
        max_num_batched_tokens=num_running * NUM_PROMPT_TOKENS,
        max_num_seqs=num_running,
        max_model_len=NUM_PROMPT_TOKENS + num_steps + 10,
        max_waiting_requests=num_running + num_waiting,
        is_overlapped=is_overlapped,
    )
    cache = HybridCacheManager(spec, num_blocks + 1, num_running + 1, PrefixRules())
    scheduler = Scheduler(limits, cache, time.monotonic)
    sampling = SamplingParams(max_tokens=num_steps + 10)
    for index in range(num_running + num_waiting):
        scheduler.add(
            Request(
                request_id=f"request-{index}",
                prompt_token_ids=list(range(NUM_PROMPT_TOKENS)),
                sampling=sampling,
                seed=index,
                stop_token_ids=[-1],
                arrival_time_s=time.monotonic(),
                timeouts=Timeouts(total_s=3600.0 + index),
                owner=f"owner-{index % NUM_OWNERS}",
            )
        )
    scheduler.observe_step(1_000_000, 1e-3)  # prompts cost nothing here: the first step takes them all
    return scheduler


def answer(batch: ScheduledBatch, step: int) -> StepOutput:
    """One token for each row, as a worker would send it."""
    return StepOutput(batch.step_id, [RowOutput(row.row, [step]) for row in batch.rows])


def measure(num_running: int, num_waiting: int, num_steps: int, is_overlapped: bool) -> tuple[float, float]:
    """Median microseconds of `expire` with `schedule`, and of `update`, over decode steps."""
    scheduler = make_scheduler(num_running, num_waiting, num_steps, is_overlapped)
    schedule_us: list[float] = []
    update_us: list[float] = []
    in_flight: deque[tuple[ScheduledBatch, StepOutput]] = deque()
    for step in range(num_steps):
        start = time.perf_counter_ns()
        scheduler.expire()
        batch = scheduler.schedule()
        scheduled = time.perf_counter_ns()
        assert batch is not None and len(batch.rows) == num_running
        in_flight.append((batch, answer(batch, step)))
        if is_overlapped and not step:
            continue
        done, output = in_flight.popleft()
        answered = time.perf_counter_ns()
        scheduler.update(done, output)
        updated = time.perf_counter_ns()
        if step > is_overlapped:  # the first step computes the prompts
            schedule_us.append((scheduled - start) / 1e3)
            update_us.append((updated - answered) / 1e3)
    return statistics.median(schedule_us), statistics.median(update_us)


def main() -> int:
    """Prints the table; the exit code is 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="Cost of scheduler and cache bookkeeping per step.")
    parser.add_argument("--steps", type=int, default=2000, help="decode steps measured (default 2000)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="measurements per line; the best counts (default 3)"
    )
    parser.add_argument("--running", type=int, nargs="+", default=RUNNING)
    parser.add_argument("--waiting", type=int, nargs="+", default=WAITING)
    parser.add_argument("--overlapped", action="store_true", help="as with --async-scheduling")
    options = parser.parse_args()
    is_met = True
    sys.stdout.write("running  waiting  schedule us  update us  step us  us per running  target us\n")
    for num_running in options.running:
        for num_waiting in options.waiting:
            runs = [
                measure(num_running, num_waiting, options.steps, options.overlapped)
                for _ in range(options.repeat)
            ]
            schedule_us, update_us = min(runs, key=sum)
            step_us = schedule_us + update_us
            target_us = STEP_TARGET_US + REQUEST_TARGET_US * num_running
            is_met &= step_us <= target_us
            sys.stdout.write(
                f"{num_running:7}  {num_waiting:7}  {schedule_us:11.1f}  {update_us:9.1f}  {step_us:7.1f}  "
                f"{step_us / num_running:14.2f}  {target_us:9.1f}\n"
            )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
