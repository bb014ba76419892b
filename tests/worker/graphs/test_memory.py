"""Graphs keep the memory of one moment, however many layers call Python between their parts."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterable

import pytest
import torch

from qanat.config.graphs import GraphSettings
from qanat.config.model_config import ModelConfig
from qanat.models.dummy import load_dummy
from qanat.platforms.groups import ParallelGroup
from qanat.worker.graphs.runner import GraphRunner
from qanat.worker.worker import Worker
from tests.support.rank_threads import on_ranks
from tests.worker.driver import Driver, random_prompt
from tests.worker.test_tensor_parallel import config_of, play
from tests.worker.tiny_model import _COMMON, _DELTA_NET

SIZES = (1, 2, 4)
ROW_BYTES = 64 * 4
"""Of one token between two layers: the least that a layer could keep. Single numbers that others hold vary by less."""


def held_bytes(runners: Iterable[GraphRunner]) -> int:
    """Of all tensors outside the graphs' arenas, and of the regions that are not given back."""
    gc.collect()
    arenas = [
        captured.graph.arena  # type: ignore[attr-defined]
        for runner in runners
        for captured in runner._captured.values()
        if captured is not None
    ]
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in found}
    outside = sum(
        size for address, size in storages.items() if not any(arena.holds(address) for arena in arenas)
    )
    return outside + sum(arena.used_bytes for arena in arenas)


def of_pieces(num_layers: int, changed: dict[str, int]) -> int:
    """What graphs add to what a model of so many layers holds."""
    shape = {"architectures": ["Qwen3_5ForCausalLM"], **_COMMON, **_DELTA_NET, **changed}
    config = ModelConfig.from_dict({**shape, "num_hidden_layers": num_layers})
    held = []
    for graphs in (GraphSettings(), GraphSettings("PIECEWISE", SIZES)):
        driver = Driver(model=load_dummy(config, torch.float32, seed=5), graphs=graphs)
        driver.add("r0", random_prompt(3, 0))
        for _ in range(3):
            driver.step_all()
        runner = driver.runner._passes
        assert sum(captured is not None for captured in runner._captured.values()) == len(held) * 2
        held.append(held_bytes([runner]))
        del driver, runner
    return held[1] - held[0]


@pytest.mark.parametrize("changed", [{}, {"head_dim": 24}])
def test_a_graph_in_pieces_keeps_no_more_for_more_layers(changed: dict[str, int]) -> None:
    assert abs(of_pieces(8, changed) - of_pieces(4, changed)) < ROW_BYTES


def of_ranks(num_layers: int, graphs: GraphSettings) -> int:
    config = config_of("qwen3", 2, graphs=graphs)
    shape = ModelConfig.from_dict(
        {"architectures": ["Qwen3ForCausalLM"], **_COMMON, "num_hidden_layers": num_layers}
    )

    def work(group: ParallelGroup) -> Worker:
        worker = Worker(dataclasses.replace(config, model=shape), group=group)
        worker.load()
        play(worker)
        return worker

    workers = on_ranks(2, work)
    return held_bytes(worker._runner._passes for worker in workers if worker._runner is not None)


def test_exchanges_between_ranks_keep_no_more_for_more_layers() -> None:
    few, many = (
        of_ranks(num_layers, GraphSettings("FULL", SIZES)) - of_ranks(num_layers, GraphSettings())
        for num_layers in (2, 6)
    )
    assert abs(many - few) < ROW_BYTES
