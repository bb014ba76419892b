"""Parameters and bytes of weights, against figures worked out by hand and what must hold for any layout."""

from __future__ import annotations

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.deploy.sizing.layout import Drafter
from qanat.deploy.sizing.parameters import parameters_of, vision_tower
from qanat.deploy.sizing.weights import total_weight_bytes, weight_bytes, weight_format
from tests.deploy.sizing.cases import KNOWLEDGE, MODELS, all_parameters, golden

FIGURES = golden("weights.yaml")
VARIANTS = sorted(KNOWLEDGE.weight_formats)
SIZES = (1, 2, 4, 8, 16)


@pytest.mark.parametrize("name", FIGURES["parameters"])
def test_parameters_are_those_of_the_config(name: str) -> None:
    assert list(astuple(parameters_of(MODELS[name]))) == FIGURES["parameters"][name]


@pytest.mark.parametrize("name", FIGURES["billions"])
def test_parameters_are_what_the_name_promises(name: str) -> None:
    assert all_parameters(parameters_of(MODELS[name])) / 1e9 == pytest.approx(
        FIGURES["billions"][name], rel=0.05
    )


def test_every_model_is_looked_at() -> None:
    assert set(FIGURES["parameters"]) | set(FIGURES["billions"]) == set(MODELS)


@pytest.mark.parametrize("name", FIGURES["gigabytes"])
def test_checkpoints_have_the_size_of_their_format(name: str) -> None:
    for variant, gigabytes in FIGURES["gigabytes"][name].items():
        # 35B w4a8 is given as 21.0 where scales of its 8 bit layers are left out.
        assert total_weight_bytes(MODELS[name], variant) / 1e9 == pytest.approx(gigabytes, abs=0.08), variant


@pytest.mark.parametrize("row", FIGURES["even_share"], ids=lambda row: f"{row[0]}-{row[1]}-tp{row[2]}")
def test_an_npu_holds_its_share_and_a_little_more(row: list[object]) -> None:
    name, variant, tp, gigabytes = row
    assert isinstance(name, str) and isinstance(variant, str) and isinstance(tp, int)
    share = total_weight_bytes(MODELS[name], variant) / tp
    held = weight_bytes(MODELS[name], variant, tp, tp, "mtp")
    assert round(share / 1e9, 1) == gigabytes
    assert share <= held <= 1.02 * share


def test_the_vision_tower_has_about_half_a_billion_parameters() -> None:
    assert vision_tower(MODELS["Qwen3.5-397B-A17B"], 1) == pytest.approx(0.45e9, rel=0.05)
    model = MODELS["Qwen3.5-35B-A3B"]
    extra = weight_bytes(model, "w8a8", 2, 2, with_vision=True) - weight_bytes(model, "w8a8", 2, 2)
    assert extra == 2 * vision_tower(model, 2)


def test_names_of_formats_are_read_as_people_write_them() -> None:
    assert weight_format("W8A8-MTP") == weight_format("w8a8-QuaRot") == weight_format("w8a8")
    with pytest.raises(ConfigError, match=r"'int3'.*bf16.*w4a4-mxfp4.*w8a8"):
        weight_format("int3")


def test_redundant_experts_are_copies_of_whole_ones() -> None:
    model = MODELS["Qwen3-235B-A22B"]
    plain = weight_bytes(model, "bf16", 4, 16)
    expert = 94 * 3 * 4096 * 1536 * 2
    assert weight_bytes(model, "bf16", 4, 16, num_redundant_experts=16) == plain + expert
    assert weight_bytes(model, "bf16", 4, 16, num_redundant_experts=1) == plain + expert


def test_experts_in_slices_take_as_much_as_whole_ones_where_both_divide() -> None:
    model = MODELS["Qwen3.5-35B-A3B"]
    whole = weight_bytes(model, "bf16", 4, 8)
    assert weight_bytes(model, "bf16", 4, 8, expert_parallel=False) == whole


def test_an_eagle_draft_is_one_layer_with_a_small_head() -> None:
    model = MODELS["Qwen3-32B"]
    draft = weight_bytes(model, "w8a8", 1, 1, "eagle3") - weight_bytes(model, "w8a8", 1, 1)
    layer = 3 * 64 * 128 * 5120 + 4 * 8 * 128 * 5120 + 3 * 5120 * 25600
    assert draft == 2 * (layer + 3 * 5120 * 5120 + 32000 * 5120)


drafters: st.SearchStrategy[Drafter | None] = st.sampled_from((None, "mtp", "eagle3"))
layouts = {
    "model": st.sampled_from(KNOWLEDGE.models),
    "variant": st.sampled_from(VARIANTS),
    "tp": st.sampled_from(SIZES),
    "dp": st.sampled_from((1, 2, 8)),
    "drafter": drafters,
    "vision": st.booleans(),
}


@given(**layouts)
def test_more_npus_never_hold_more_each(model, variant, tp, dp, drafter, vision) -> None:  # type: ignore[no-untyped-def]
    held = weight_bytes(model, variant, tp, tp * dp, drafter, vision)
    assert weight_bytes(model, variant, 2 * tp, 2 * tp * dp, drafter, vision) <= held
    assert weight_bytes(model, variant, tp, 2 * tp * dp, drafter, vision) <= held


@given(**layouts)
def test_all_npus_together_hold_the_checkpoint(model, variant, tp, dp, drafter, vision) -> None:  # type: ignore[no-untyped-def]
    whole = total_weight_bytes(model, variant, drafter == "mtp", vision)
    assert tp * dp * weight_bytes(model, variant, tp, tp * dp, drafter, vision) >= 0.9999 * whole


@given(model=layouts["model"], tp=layouts["tp"])
def test_fewer_bits_never_take_more(model, tp) -> None:  # type: ignore[no-untyped-def]
    sizes = [weight_bytes(model, variant, tp, tp) for variant in ("w4a8", "w8a8", "w8a8-mxfp8", "bf16")]
    assert sizes == sorted(sizes)
