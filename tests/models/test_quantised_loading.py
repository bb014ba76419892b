"""Checkpoints in every quantised format: what is read is what was written, on one rank and on two."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from qanat.config.model_config import ModelConfig
from qanat.core.cache_folder import CacheFolder
from qanat.kernels import ops
from qanat.kernels.native.module import is_built
from qanat.kernels.providers import choose_providers
from qanat.kernels.quantised import Int4Matrix, Int8Matrix, whole_row_length
from qanat.models.decoder import CausalLM
from qanat.models.loader import load_model
from qanat.platforms.groups import ParallelGroup, PlannedGroup
from qanat.quant.parameter import Shard
from qanat.quant.stored import StoredExperts
from tests.models.tiny import FAMILIES, VOCAB_SIZE, write_checkpoint
from tests.support.forward import ForwardRunner
from tests.support.quantised_checkpoints import FORMATS, Format, quantise_folder, write_meaning
from tests.support.rank_threads import on_ranks

NAMES = ("qwen3-untied", "qwen3_moe-per_expert", "qwen3_5-vision_tied", "qwen3_5_moe-vision_per_expert")
DENSE, EXPERTS, HYBRID, HYBRID_EXPERTS = NAMES
BY_NAME = {family.name: family for family in FAMILIES}
FORMAT = {form.name: form for form in FORMATS}

QUICK = (
    "ascend-W8A8",
    "ascend-W4A8_DYNAMIC",
    "ascend-W4A8_DYNAMIC-groups",
    "compressed-W4A16",
    "fp8-blocks",
    "gptq-int4",
)
QUICK_FIRST = [
    pytest.param(form, marks=() if form.name in QUICK else pytest.mark.slow, id=form.name) for form in FORMATS
]

ROUNDING = 1 / 253
"""Of an output's largest weight: what rounding anew to int8 may change."""

ACTIVATIONS = 0.05
"""Of the range of the logits: what activations in int8 may change in a random model of four layers."""


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A plain checkpoint of each family."""
    folders = {}
    for name in NAMES:
        folders[name] = tmp_path_factory.mktemp(name)
        write_checkpoint(BY_NAME[name], folders[name], torch.float32)
    return folders


def load(folder: Path, group: ParallelGroup | None = None) -> CausalLM:
    return load_model(folder, ModelConfig.from_folder(folder), torch.float32, "cpu", group=group)[0]


def matrices(model: CausalLM) -> dict[str, Int8Matrix | Int4Matrix]:
    """The quantised matrices by the names of their weights; those of experts one by one."""
    found: dict[str, Int8Matrix | Int4Matrix] = {}
    for name, module in model.named_modules():
        method = getattr(module, "method", None)
        if isinstance(method, StoredExperts):
            for expert in range(module.gate_up_proj.shape[0]):
                gate_up, down = module.gate_up_proj.expert(expert), module.down_proj.expert(expert)
                half = gate_up.shape[0] // 2
                for part, rows in (("gate_proj", slice(0, half)), ("up_proj", slice(half, None))):
                    values, scales = gate_up.values[rows], gate_up.scales[rows]
                    found[f"{name}.{expert}.{part}.weight"] = (
                        Int8Matrix(values, scales)
                        if isinstance(gate_up, Int8Matrix)
                        else Int4Matrix(values, scales, gate_up.group_size)
                    )
                found[f"{name}.{expert}.down_proj.weight"] = down
        elif method is not None and isinstance(module.weight, Int8Matrix | Int4Matrix):
            found[f"{name}.weight"] = module.weight
    return found


def own_name(name: str) -> str:
    return name.replace("model.language_model.", "model.")


def check(read: Tensor, written: Tensor, form: Format, name: str, rows: Tensor | None = None) -> None:
    """Compares matrices; of a rank's part of the inputs `rows` are whole, as scales are those of whole rows."""
    if form.exact:
        torch.testing.assert_close(read, written, rtol=1e-6, atol=0, msg=name)
    else:
        error = (read - written).abs().amax(1) / (written if rows is None else rows).abs().amax(1)
        assert error.max() <= ROUNDING, (name, error.max())


@pytest.mark.parametrize("form", QUICK_FIRST)
def test_every_matrix_means_what_was_written(form: Format, plain: dict[str, Path], tmp_path: Path) -> None:
    meanings = quantise_folder(plain[HYBRID_EXPERTS], tmp_path, form)
    found = matrices(load(tmp_path))
    assert found.keys() == {own_name(name) for name in meanings}
    assert all(isinstance(each, Int8Matrix | Int4Matrix) for each in found.values())
    wanted = Int4Matrix if form.stored == "int4" else Int8Matrix
    assert isinstance(found["model.layers.3.self_attn.q_proj.weight"], wanted)
    for name, written in meanings.items():
        check(found[own_name(name)].dequantised(), written, form, name)


@pytest.mark.parametrize("form", QUICK_FIRST)
def test_a_rank_reads_its_region_of_every_matrix(
    form: Format, plain: dict[str, Path], tmp_path: Path
) -> None:
    meanings = quantise_folder(plain[HYBRID], tmp_path, form)
    shards = parameter_shards(plain[HYBRID])
    for rank in range(2):
        found = matrices(load(tmp_path, PlannedGroup(rank, 2)))
        assert found.keys() == {own_name(name) for name in meanings}
        for name, written in meanings.items():
            shard = shards[rank][own_name(name)]
            assert shard is not None
            check(
                found[own_name(name)].dequantised(),
                shard.of(written),
                form,
                name,
                written if shard.axis == 1 else None,
            )
            own = found[own_name(name)]
            if isinstance(own, Int8Matrix) and shard.axis == 0:
                assert own.segment_length == whole_row_length(written.shape[1])
            else:
                assert bool(own.segment_length) == (shard.axis == 1)


def parameter_shards(folder: Path) -> list[dict[str, Shard | None]]:
    """What each of two ranks keeps of a plain checkpoint."""
    models = [load(folder, PlannedGroup(rank, 2)) for rank in range(2)]
    return [{name: parameter.info.shard for name, parameter in model.named_parameters()} for model in models]


def logits(model: CausalLM, num_tokens: int = 40, num_ranks: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, VOCAB_SIZE, (num_tokens,), generator=generator).tolist()
    return ForwardRunner(model, num_ranks=num_ranks).step([("a", tokens)])[0]


def assert_near(ours: Tensor, expected: Tensor, bound: float = ACTIVATIONS) -> None:
    span = (expected.max() - expected.min()).item()
    error = (ours - expected).square().mean().sqrt().item()
    assert error <= bound * span, (error, span)


@pytest.mark.parametrize(
    ("family", "form"),
    [
        (DENSE, "compressed-int8"),
        (EXPERTS, "ascend-W4A8_DYNAMIC"),
        (HYBRID, "ascend-W8A8"),
        (HYBRID_EXPERTS, "ascend-W8A8_DYNAMIC"),
        pytest.param(DENSE, "ascend-W4A8_DYNAMIC", marks=pytest.mark.slow),
        pytest.param(EXPERTS, "fp8-blocks", marks=pytest.mark.slow),
        pytest.param(HYBRID, "gptq-int4", marks=pytest.mark.slow),
        pytest.param(HYBRID, "compressed-int8-static", marks=pytest.mark.slow),
        pytest.param(HYBRID_EXPERTS, "ascend-W4A4_MXFP4", marks=pytest.mark.slow),
    ],
)
def test_logits_are_near_those_of_the_same_weights_in_fp32(
    family: str, form: str, plain: dict[str, Path], tmp_path: Path
) -> None:
    meanings = quantise_folder(plain[family], tmp_path / "quantised", FORMAT[form])
    write_meaning(plain[family], tmp_path / "meaning", meanings)
    assert_near(logits(load(tmp_path / "quantised")), logits(load(tmp_path / "meaning")))


@pytest.mark.parametrize("form", ["ascend-W8A8", "ascend-W4A8_DYNAMIC-groups"])
def test_two_ranks_compute_what_one_does(form: str, plain: dict[str, Path], tmp_path: Path) -> None:
    quantise_folder(plain[DENSE], tmp_path, FORMAT[form])
    whole = logits(load(tmp_path))
    for part in on_ranks(2, lambda group: logits(load(tmp_path, group), num_ranks=2)):
        assert_near(part, whole, 0.02)


def test_a_static_product_is_ascends_formula(plain: dict[str, Path], tmp_path: Path) -> None:
    """Integers first, the correction among them, and then one factor for each output."""
    quantise_folder(plain[DENSE], tmp_path, FORMAT["ascend-W8A8"])
    tensors = load_file(tmp_path / "quant_model_weights.safetensors")
    name = "model.layers.0.mlp.down_proj"
    own = {key.removeprefix(f"{name}."): each for key, each in tensors.items() if key.startswith(f"{name}.")}
    x = torch.randn(9, own["weight"].shape[1], generator=torch.Generator().manual_seed(3))
    q = (x / own["input_scale"] + own["input_offset"]).round().clamp(-128, 127)
    expected = (q.double() @ own["weight"].double().t() + own["quant_bias"]) * own["deq_scale"]
    ours = ops.linear(x, load(tmp_path).get_submodule(name).weight)
    torch.testing.assert_close(ours, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not is_built(), reason="the native kernels are not built, and only they pack")
@pytest.mark.parametrize("form", ["ascend-W8A8", "gptq-int4"])
def test_native_kernels_agree_and_a_second_start_maps_what_the_first_packed(
    form: str, plain: dict[str, Path], tmp_path: Path
) -> None:
    quantise_folder(plain[EXPERTS], tmp_path / "model", FORMAT[form])
    config = ModelConfig.from_folder(tmp_path / "model")
    reference = logits(load(tmp_path / "model"))
    choose_providers(1)
    cache = CacheFolder(tmp_path / "cache", 2**30)
    first, _ = load_model(tmp_path / "model", config, torch.float32, "cpu", cache=cache)
    for thread in threading.enumerate():
        if thread.name == "packed-weights":
            thread.join()
    second, report = load_model(tmp_path / "model", config, torch.float32, "cpu", cache=cache)
    assert report.kept is not None
    assert first.size_bytes() == second.size_bytes()
    assert torch.equal(logits(first), logits(second))
    assert_near(logits(first), reference, 0.02)
