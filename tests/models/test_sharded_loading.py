"""Each rank reads from the files what it keeps, and nothing else, in every layout of every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qanat.config.model_config import ModelConfig
from qanat.core.errors import CheckpointError
from qanat.models.decoder import CausalLM
from qanat.models.loader import LoadReport, load_model
from qanat.platforms.groups import ParallelGroup, PlannedGroup, SingleGroup
from tests.models.tiny import FAMILIES, Family, write_checkpoint


def load(folder: Path, group: ParallelGroup) -> tuple[CausalLM, LoadReport]:
    return load_model(folder, ModelConfig.from_folder(folder), torch.float32, "cpu", group=group)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_rank_reads_exactly_what_it_keeps(family: Family, tmp_path: Path) -> None:
    write_checkpoint(family, tmp_path, torch.float32)
    whole, report = load(tmp_path, SingleGroup())
    parameters = dict(whole.named_parameters())
    num_bytes = sum(parameter.nbytes for parameter in parameters.values())
    assert report.read_bytes == num_bytes == report.mapped_bytes + report.copied_bytes
    ranks = [load(tmp_path, PlannedGroup(rank, 2)) for rank in range(2)]
    for model, report in ranks:
        own = dict(model.named_parameters())
        assert own.keys() == parameters.keys()
        for name, parameter in own.items():
            shard = parameter.info.shard
            wanted = parameters[name] if shard is None else shard.of(parameters[name])
            assert torch.equal(parameter, wanted), name
            assert parameter.info.laid_out(parameter).data_ptr() == parameter.data_ptr(), name
        assert report.read_bytes == sum(parameter.nbytes for parameter in own.values())
        # Norms and routers are held by both; the rest of a tiny model is most of it.
        assert report.read_bytes < 0.55 * num_bytes
    assert ranks[0][1].mapped_bytes > 0, "rows that lie together are the mapped file itself"


def test_the_repeated_head_of_a_tied_model_is_compared_row_by_row(tmp_path: Path) -> None:
    """Both ranks together compare all of it: a difference in the second half is seen by the second rank."""
    family = next(family for family in FAMILIES if family.name == "qwen3-tied")
    write_checkpoint(family, tmp_path, torch.float32)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    head = tensors["model.embed_tokens.weight"].clone()
    head[-1, 0] += 1
    save_file({**tensors, "lm_head.weight": head}, path, metadata={"format": "pt"})
    load(tmp_path, PlannedGroup(0, 2))
    with pytest.raises(CheckpointError, match="differs from the embedding"):
        load(tmp_path, PlannedGroup(1, 2))


def test_a_shape_is_checked_against_the_whole_tensor(tmp_path: Path) -> None:
    family = next(family for family in FAMILIES if family.name == "qwen3-untied")
    write_checkpoint(family, tmp_path, torch.float32)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.self_attn.o_proj.weight"
    save_file({**tensors, name: tensors[name][:, :64].contiguous()}, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"has shape \[64, 64\], expected \[64, 128\]"):
        load(tmp_path, PlannedGroup(0, 2))
