"""From a resolved configuration to an executor that runs: other hosts gathered, memory planned, ranks started."""

from __future__ import annotations

import time

from qanat.config.resolved import ResolvedConfig
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import ConfigError
from qanat.executor.base import Executor
from qanat.executor.gathering import gather
from qanat.executor.multiproc import MultiprocExecutor
from qanat.executor.node_link import closed_on_failure
from qanat.executor.planning import StartPlan, plan_start
from qanat.executor.reports import join_timeout_s
from qanat.executor.uniproc import UniprocExecutor


def start_executor(
    config: ResolvedConfig, available_bytes: int, matcher_factory: MatcherFactory | None
) -> tuple[StartPlan, Executor]:
    """The executor for this configuration, loaded, and the plan that it follows.

    Hosts with less memory than this one decide for all, as every rank holds as many blocks as the others.

    Args:
        config: every setting.
        available_bytes: what this host can give to its ranks together.
        matcher_factory: for requests whose output has a form.

    Raises:
        CapacityError: weights or cache do not fit.
        CheckpointError: the model folder cannot be served.
        ConfigError: other hosts cannot be heard.
        EngineDeadError: a rank or a host did not come, or would not compute the same.
    """
    if config.parallel.node_rank > 0:
        raise ConfigError(
            f"--node-rank {config.parallel.node_rank} computes for node 0 and answers nobody: start it with "
            "`qanat serve`.",
            param="--node-rank",
        )
    if config.tensor_parallel_size == 1:
        start = plan_start(config, available_bytes=available_bytes)
        return start, UniprocExecutor(start.config, start.memory, matcher_factory)
    links = gather(config, time.monotonic() + join_timeout_s(config))
    with closed_on_failure(links):
        least_bytes = min([available_bytes, *(link.report.available_bytes for link in links)])
        start = plan_start(config, available_bytes=least_bytes)
    return start, MultiprocExecutor(start.config, start.memory, matcher_factory, links=links)
