"""What hosts of one group compare: what decides about answers, and nothing that may be each host's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from safetensors.torch import save_file

from qanat.core.comparing import differences
from qanat.executor.reports import traits_of, versions
from tests.worker.tiny_model import tiny_config


def test_other_numbers_of_the_same_shape_are_a_difference(tmp_path: Path) -> None:
    traits = []
    for scale in (1.0, 1.0, 2.0):
        folder = tmp_path / str(len(traits))
        folder.mkdir()
        save_file(
            {"weight": torch.arange(100_000, dtype=torch.float32) * scale}, folder / "model.safetensors"
        )
        traits.append(
            traits_of(dataclasses.replace(tiny_config(), model_path=str(folder), load_format="auto"))
        )
    own, copy, trained = traits
    assert differences(own, copy) == []
    assert [text.split()[0] for text in differences(own, trained)] == ["weights"]


def test_what_rank_0_settles_alone_is_no_difference_and_what_is_computed_with_is() -> None:
    config = tiny_config()
    alone = dataclasses.replace(
        config,
        scheduler=dataclasses.replace(
            config.scheduler, policy="priority", max_waiting_requests=1, max_queue_wait_s=1.0
        ),
        cache=dataclasses.replace(config.cache, memory_share=0.123),
        step_timeout_s=config.step_timeout_s + 1,
    )
    assert differences(traits_of(config), traits_of(alone)) == []
    longer = dataclasses.replace(
        config,
        scheduler=dataclasses.replace(config.scheduler, max_model_len=config.scheduler.max_model_len + 1),
    )
    assert [text.split()[0] for text in differences(traits_of(config), traits_of(longer))] == [
        "scheduler.max_model_len"
    ]
    assert versions()["python"].count(".") == 1
