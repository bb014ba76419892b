"""What must be equal everywhere, and how a difference is named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from qanat.config.resolved import ResolvedConfig
from qanat.engine.remote.addresses import (
    address_towards,
    endpoint,
    interface_of,
    own_addresses,
    resolved,
)
from qanat.engine.remote.identity import differences, replica_names, traits_of
from tests.worker.tiny_model import tiny_config

NAMES = st.dictionaries(st.sampled_from("abcde"), st.text(max_size=3))


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


@given(NAMES, NAMES)
def test_differences_are_none_exactly_where_all_is_equal(own: dict[str, str], other: dict[str, str]) -> None:
    found = differences(own, other)
    assert (not found) is (own == other)
    assert len(found) == len([name for name in own.keys() | other.keys() if own.get(name) != other.get(name)])


def test_replicas_are_named_in_words() -> None:
    assert replica_names([3]) == "replica 3"
    assert replica_names(range(1, 3)) == "replicas 1 and 2"
    assert replica_names((0, 1, 2)) == "replicas 0, 1 and 2"


def test_this_host_knows_its_addresses() -> None:
    assert own_addresses()["127.0.0.1"] == "lo" == interface_of("127.0.0.1")
    assert interface_of("0.0.0.0") == interface_of("::") == "all"
    assert interface_of("192.0.2.1") == "?"
    assert address_towards("127.0.0.1", 1) == "127.0.0.1"
    assert resolved("localhost") in ("127.0.0.1", "::1")
    assert endpoint("::1", 5) == "tcp://[::1]:5" and endpoint("127.0.0.1", 5) == "tcp://127.0.0.1:5"
