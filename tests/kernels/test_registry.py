from __future__ import annotations

import pytest
import torch

from qanat.core.errors import ConfigError
from qanat.kernels import ops, registry
from qanat.kernels.registry import Op, all_ops, format_op_table, select_providers


@pytest.fixture
def double() -> Op[[int], int]:
    def double(x: int) -> int:
        """Twice x."""
        return 2 * x

    return Op(double, row_invariant=False)


def test_calls_go_to_the_reference_until_a_provider_is_chosen(double: Op[[int], int]) -> None:
    double.register("shift", lambda x: x << 1, row_invariant=True)
    double.register("wrong", lambda x: 0, row_invariant=True, is_usable=lambda: False)
    assert (double(4), double.chosen.name) == (8, "reference")
    assert double.select().name == "shift"
    assert double.chosen.row_invariant
    assert double(4) == 8
    assert double.select("reference").name == "reference"


def test_a_forced_provider_that_cannot_run_is_an_error(double: Op[[int], int]) -> None:
    double.register("gpu", lambda x: x, row_invariant=False, is_usable=lambda: False)
    with pytest.raises(ConfigError, match="'gpu' of op double cannot run"):
        double.select("gpu")
    with pytest.raises(ConfigError, match="choose one of reference, gpu"):
        double.select("npu")
    assert double.chosen.name == "reference"


def test_a_name_is_registered_once(double: Op[[int], int]) -> None:
    double.register("shift", lambda x: x << 1, row_invariant=True)
    with pytest.raises(ValueError, match="already"):
        double.register("shift", lambda x: x, row_invariant=True)


def test_an_op_is_declared_once() -> None:
    def swiglu() -> None:
        """Another op of the same name."""

    with pytest.raises(ValueError, match="twice"):
        registry.op()(swiglu)


def test_every_op_has_a_contract_and_a_choice() -> None:
    chosen = dict(select_providers())
    assert chosen.keys() == {declared.name for declared in all_ops()}
    assert {"paged_attention", "gated_delta_net", "moe_experts", "linear"} <= chosen.keys()
    for declared in all_ops():
        assert declared.__doc__
        assert getattr(ops, declared.name) is declared


def test_forcing_by_op_name() -> None:
    assert dict(select_providers({"linear": "reference"}))["linear"].name == "reference"
    with pytest.raises(ConfigError, match="no op 'attention'"):
        select_providers({"attention": "reference"})


def test_the_table_names_provider_and_invariance() -> None:
    lines = format_op_table().splitlines()
    assert lines[0].split() == ["op", "provider", "row_invariant"]
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows["embedding"] == ["reference", "yes"]
    assert rows["linear"] == ["reference", "yes"]


def test_embedding_keeps_its_promise() -> None:
    """A row's bits do not depend on the rows beside it."""
    table, ids = torch.randn(50, 33), torch.arange(50).flip(0)
    whole = ops.embedding(ids, table)
    for row in range(50):
        assert torch.equal(ops.embedding(ids[row : row + 1], table)[0], whole[row])
