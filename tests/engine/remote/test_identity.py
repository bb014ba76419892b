"""What must be equal everywhere, and how a difference is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qanat.config.resolved import ResolvedConfig
from qanat.core.comparing import differences
from qanat.engine.remote.identity import replica_names, traits_of
from qanat.engine.remote.sockets import endpoint
from tests.worker.tiny_model import tiny_config


def saved(folder: Path, value: float = 0.0, *, name: str = "a") -> ResolvedConfig:
    """A configuration whose weights are one large tensor, equal but for one element near its middle."""
    folder.mkdir()
    weights = torch.zeros(100_000)
    weights[50_000:51_000] = value
    save_file({name: weights}, folder / "model.safetensors")
    return dataclasses.replace(tiny_config(), load_format="auto", model_path=str(folder))


def test_each_hosts_own_affairs_do_not_count() -> None:
    config = tiny_config()
    other = dataclasses.replace(
        config,
        model_path="/elsewhere",
        served_model_names=("other",),
        num_threads=7,
        init_timeout_s=5.0,
        scheduler=dataclasses.replace(config.scheduler, max_num_seqs=3, max_waiting_requests=9),
        cache=dataclasses.replace(config.cache, memory_share=0.9, num_blocks_override=99),
    )
    assert differences(traits_of(config), traits_of(other)) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"dtype": "bfloat16"}, "--dtype"),
        ({"seed": 5}, "--seed"),
        ({"tensor_parallel_size": 2}, "--tensor-parallel-size"),
        ({"max_logprobs": 3}, "--max-logprobs"),
    ],
)
def test_what_decides_about_answers_is_named(change: dict[str, object], name: str) -> None:
    config = tiny_config()
    (text,) = differences(traits_of(config), traits_of(dataclasses.replace(config, **change)))
    assert text.startswith(f"{name} ") and " instead of " in text


def test_weights_are_told_apart_by_names_and_by_numbers(tmp_path: Path) -> None:
    configs = [
        saved(tmp_path / "one"),
        saved(tmp_path / "same"),
        saved(tmp_path / "trained", 0.5),
        saved(tmp_path / "named", name="b"),
    ]
    one, same, trained, named = (traits_of(config) for config in configs)
    assert differences(one, same) == []
    for other in (trained, named):
        (text,) = differences(one, other)
        assert text.startswith("weights ")


def test_tokenizers_are_compared(tmp_path: Path) -> None:
    one, other = saved(tmp_path / "one"), saved(tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").write_text("{}")
    (text,) = differences(traits_of(one), traits_of(other))
    assert text.startswith("tokenizer.json ") and text.endswith("instead of none")


def test_replicas_are_named_in_words() -> None:
    assert replica_names([3]) == "replica 3"
    assert replica_names(range(1, 3)) == "replicas 1 and 2"
    assert replica_names((0, 1, 2)) == "replicas 0, 1 and 2"


def test_endpoints_are_written_as_the_socket_library_wants_them() -> None:
    assert endpoint("::1", 5) == "tcp://[::1]:5" and endpoint("127.0.0.1", 5) == "tcp://127.0.0.1:5"
