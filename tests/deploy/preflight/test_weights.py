from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from qanat.deploy.preflight.host import ThisHost
from qanat.deploy.preflight.model_folder import fingerprint
from qanat.deploy.preflight.result import Result, Status
from qanat.deploy.preflight.target import Target, target_of
from qanat.deploy.preflight.weights import check_model
from tests.deploy.plan.example_plans import single_node
from tests.deploy.preflight.folders import CONFIG, TEXT_CONFIG, quantised, shard, write_model


def results(folder: Path, target: Target | None = None) -> dict[str, list[Result]]:
    target = target or Target()
    found: dict[str, list[Result]] = {}
    for result in check_model(ThisHost(), at_folder(target, folder)):
        found.setdefault(result.check, []).append(result)
    return found


def at_folder(target: Target, folder: Path) -> Target:
    return Target(
        plan=target.plan, node=target.node, flags=target.flags, chip=target.chip, model_path=str(folder)
    )


def bad(folder: Path, target: Target | None = None) -> dict[str, str]:
    """Failures by check, and what was seen."""
    return {
        check: "; ".join(result.seen for result in each if result.status is Status.FAIL)
        for check, each in results(folder, target).items()
        if any(result.status is Status.FAIL for result in each)
    }


def planned(**flags: object) -> Target:
    plan = single_node()
    role = msgspec.structs.replace(plan.roles[0], flags={**plan.roles[0].flags, **flags})
    plan = msgspec.structs.replace(plan, roles=(role,), model="Qwen3.5-35B-A3B")
    return target_of(plan)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return quantised(tmp_path / "Qwen3.5-35B-A3B-w8a8-mtp")


def test_a_whole_folder_is_good(folder: Path) -> None:
    found = results(folder, planned())
    assert {check: [each.status for each in all_of] for check, all_of in found.items()} == {
        "model-files": [Status.OK],
        "model-shards": [Status.OK],
        "model-config": [Status.OK],
        "model-context": [Status.OK],
        "model-quantisation": [Status.OK],
        "model-drafter": [Status.OK],
    }
    assert "Qwen3.5-35B-A3B or Qwen3.6-35B-A3B" in results(folder)["model-config"][0].seen


def test_missing_files(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "tokenizer.json").unlink()
    assert "config.json and a tokenizer" in bad(folder)["model-files"]
    assert "no folder" in bad(folder / "none")["model-files"]


def test_a_missing_a_cut_and_an_undownloaded_shard_are_named(folder: Path) -> None:
    first, second = sorted(folder.glob("*.safetensors"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    seen = bad(folder)["model-shards"]
    assert f"{first.name} is missing" in seen and f"{second.name} is cut short" in seen
    second.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 4\n")
    assert f"{second.name} is a pointer of Git LFS" in bad(folder)["model-shards"]


def test_a_tensor_that_the_index_names_and_no_file_holds(folder: Path) -> None:
    index = folder / "quant_model_weights.safetensors.index.json"
    raw = json.loads(index.read_text())
    raw["weight_map"]["lost.weight"] = "quant_model_weights-00001-of-00002.safetensors"
    del raw["weight_map"]["lm_head.weight"]
    index.write_text(json.dumps(raw))
    found = results(folder)["model-shards"]
    assert "lost.weight" in found[0].seen and found[0].status is Status.FAIL
    assert "lm_head.weight" in found[1].seen and found[1].status is Status.WARN


def test_a_file_beside_the_index_is_told(folder: Path) -> None:
    (folder / "extra.safetensors").write_bytes(shard({"a": ("I8", (1,))}))
    assert any("extra.safetensors" in each.seen for each in results(folder)["model-shards"])


@pytest.mark.parametrize("suffix", ["weight_scale", "weight_offset"])
def test_a_quantised_weight_without_its_companion(tmp_path: Path, suffix: str) -> None:
    layer = "model.layers.0.mlp.up_proj."
    names = [name for name in ("weight", "weight_scale", "weight_offset") if name != suffix]
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        layer + name: ("I8" if name == "weight" else "F32", (2, 1)) for name in names
    }
    description = {name: "W8A8_DYNAMIC" for name in tensors}
    folder = write_model(tmp_path / "m", {"model.safetensors": tensors}, description=description)
    assert f"{layer}weight (W8A8_DYNAMIC) lacks {suffix}" in bad(folder)["model-quantisation"]


def test_dtypes_and_names_against_the_description(folder: Path) -> None:
    path = folder / "quant_model_description.json"
    description = json.loads(path.read_text())
    layer = "model.language_model.layers.3.self_attn.q_proj."
    description[layer + "weight"] = "FLOAT"
    description["lm_head.weight"] = "W8A8_DYNAMIC"
    description["gone.weight"] = "W8A8_DYNAMIC"
    del description["mtp.fc.weight"]
    path.write_text(json.dumps(description))
    seen = bad(folder)["model-quantisation"]
    assert f"{layer}weight is I8, described as FLOAT" in seen
    assert "lm_head.weight is BF16, described as W8A8_DYNAMIC" in seen
    assert "gone.weight" in seen and "lm_head.weight (W8A8_DYNAMIC) lacks" in seen
    assert any("mtp.fc.weight" in each.seen for each in results(folder)["model-quantisation"])


def test_a_type_that_is_not_known_is_no_failure(tmp_path: Path) -> None:
    folder = write_model(
        tmp_path / "m",
        {"model.safetensors": {"a.weight": ("U8", (1,))}},
        description={"a.weight": "W2A8_NEW"},
    )
    found = results(folder)["model-quantisation"]
    assert [each.status for each in found] == [Status.UNKNOWN, Status.OK] and "W2A8_NEW" in found[0].seen


def test_a_plan_for_quantised_weights_and_a_folder_without_description(tmp_path: Path) -> None:
    tensors: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
        "model.safetensors": {"a.weight": ("BF16", (1,)), "mtp.fc.weight": ("BF16", (1,))}
    }
    folder = write_model(tmp_path / "m", tensors)
    assert "the plan is for w8a8-mtp" in bad(folder, planned())["model-quantisation"]


def test_another_model_than_planned(folder: Path) -> None:
    target = target_of(single_node())
    seen = bad(folder, target)["model-config"]
    assert "not Qwen3.5-397B-A17B" in seen and "num_layers 40 instead of 60" in seen


def test_a_context_beyond_the_window(folder: Path) -> None:
    assert "262144" in bad(folder, planned(**{"max-model-len": 300000}))["model-context"]
    scaled = planned(**{"max-model-len": 300000, "hf-overrides": {"text_config": {}}})
    assert "model-context" not in bad(folder, scaled)


def test_a_context_that_the_folder_scales(tmp_path: Path) -> None:
    text = {**TEXT_CONFIG, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}
    folder = write_model(
        tmp_path / "m", {"model.safetensors": {"mtp.a": ("I8", (1,))}}, config={**CONFIG, "text_config": text}
    )
    assert "model-context" not in bad(folder, planned(**{"max-model-len": 300000}))


def test_speculation_without_the_drafter(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", {"model.safetensors": {"lm_head.weight": ("BF16", (1,))}})
    assert "no tensor of m is mtp" in bad(folder, planned())["model-drafter"]
    eagle = {"method": "eagle3", "model": str(tmp_path / "draft"), "num_speculative_tokens": 3}
    target = planned(**{"speculative-config": eagle})
    assert "no whole model folder" in bad(folder, target)["model-drafter"]
    write_model(tmp_path / "draft", {"model.safetensors": {"fc.weight": ("BF16", (1,))}})
    assert "model-drafter" not in bad(folder, target)


def test_files_that_are_no_json(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100000)
    (folder / "quant_model_description.json").write_text("nope")
    seen = bad(folder)["model-files"]
    assert "config.json is no JSON" in seen and "quant_model_description.json is no JSON" in seen


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", {"model.safetensors": {"a": ("I8", (1,))}})
    (folder / "model.safetensors.index.json").unlink()
    assert bad(folder) == {}
    (folder / "model.safetensors").unlink()
    assert "no safetensors" in bad(folder)["model-shards"]


def test_the_fingerprint_tells_copies_apart(folder: Path, tmp_path: Path) -> None:
    same = quantised(tmp_path / "other")
    assert fingerprint(str(folder)) == fingerprint(str(same)) and len(fingerprint(str(folder))) == 4
    (same / "config.json").write_text("{}")
    different = {
        part for part, text in fingerprint(str(folder)).items() if fingerprint(str(same))[part] != text
    }
    assert different == {"config"}
    last = sorted(same.glob("*.safetensors"))[-1]
    last.write_bytes(last.read_bytes()[:-1])
    assert fingerprint(str(same))["shards"] != fingerprint(str(folder))["shards"]
    assert fingerprint(str(tmp_path / "none")) == {}


def test_a_plan_for_float_weights_and_a_quantised_folder(folder: Path) -> None:
    target = planned()
    assert target.plan is not None
    plan = msgspec.structs.replace(target.plan, weights="bf16")
    assert "the plan is for bf16" in bad(folder, target_of(plan))["model-quantisation"]
