"""Quantised checkpoints through the door: served with the flag and without, and refused with the tensor's name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file

from qanat import LLM, SamplingParams
from qanat.kernels.native.module import is_built
from tests.e2e.test_demo_server import SUMS
from tests.support.quantised_checkpoints import FORMATS, quantise_folder
from tests.support.server_process import ServerProcess, run_command

FORMAT = {form.name: form for form in FORMATS}
SCALE = "model.language_model.layers.0.linear_attn.out_proj.weight_scale"


def is_quantised(matrix: str) -> bool:
    """The multi-token layers stay as they are: this version drops them."""
    return "mtp" not in matrix and not matrix.endswith(("in_proj_a", "in_proj_b", "shared_expert_gate"))


@pytest.fixture(scope="module")
def ascend_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ascend") / "qanat-demo-w8a8"
    quantise_folder(demo_model, folder, FORMAT["ascend-W8A8_DYNAMIC"], is_quantised)
    return folder


def answers(server: ServerProcess) -> list[str]:
    """What the server says to the sums."""
    texts = []
    for question, _ in SUMS:
        body = {"model": "demo", "messages": [{"role": "user", "content": question}], "temperature": 0}
        reply = httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        texts.append(reply.json()["choices"][0]["message"]["content"])
    return texts


@pytest.mark.slow
def test_an_ascend_checkpoint_is_served_with_the_flag_and_without(ascend_model: Path) -> None:
    common = [str(ascend_model), "--served-model-name", "demo", "--max-num-seqs", "4"]
    with ServerProcess([*common, "--quantization", "ascend"]) as server:
        texts = answers(server)
        log = server.output
    right = sum(str(result) in text for (_, result), text in zip(SUMS, texts, strict=True))
    assert right >= len(SUMS) - 2, texts
    assert "W8A8_DYNAMIC" in log and "int8: " in log
    with ServerProcess(common) as server:
        assert answers(server) == texts


def test_the_plan_counts_each_kind(ascend_model: Path) -> None:
    report = json.loads(run_command(["plan", str(ascend_model), "--json"]).stdout)
    kinds = {(kind["name"], kind["stored"]): kind for kind in report["weights"]}
    assert kinds["W8A8_DYNAMIC", "int8"]["num_matrices"] > 10
    assert sum(kind["size_bytes"] for kind in report["weights"]) == report["memory"]["weight_bytes"]
    rows = {row["flag"]: row for row in report["settings"]}
    assert rows["--quantization"]["value"] == "ascend"
    assert any(
        each["field"] == "weights" and each["wanted"] == "W8A8_DYNAMIC" for each in report["decisions"]
    )


def with_a_wrong_scale(folder: Path) -> None:
    path = folder / "quant_model_weights.safetensors"
    tensors = load_file(path)
    tensors[SCALE][0] = torch.nan
    save_file(tensors, path)


def with_an_unknown_kind(folder: Path) -> None:
    path = folder / "quant_model_description.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, SCALE: "W3A3"}))


def with_a_kind_missing(folder: Path) -> None:
    path = folder / "quant_model_description.json"
    description = json.loads(path.read_text())
    del description[SCALE]
    path.write_text(json.dumps(description))


@pytest.mark.parametrize(
    "spoil",
    [
        with_a_wrong_scale,
        pytest.param(with_an_unknown_kind, marks=pytest.mark.slow),
        pytest.param(with_a_kind_missing, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_one_is_refused_with_the_tensor_named(
    demo_model: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    quantise_folder(demo_model, tmp_path / "model", FORMAT["ascend-W8A8_DYNAMIC"], is_quantised)
    spoil(tmp_path / "model")
    result = run_command(["serve", str(tmp_path / "model"), "--port", "0"])
    output = result.stdout + result.stderr
    assert result.returncode == 2, output
    assert "linear_attn.out_proj.weight_scale" in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("wanted", "named"), [("fp8", "quantised already (ascend)"), ("ascand", "did you mean ascend?")]
)
def test_a_flag_that_does_not_go_with_it_is_refused(ascend_model: Path, wanted: str, named: str) -> None:
    result = run_command(["serve", str(ascend_model), "--port", "0", "--quantization", wanted])
    assert result.returncode == 2
    assert named in result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not is_built(), reason="graphs are made of native ops")
def test_a_converted_checkpoint_answers_like_the_scheme_at_load_and_from_graphs(
    demo_model: Path, tmp_path: Path
) -> None:
    """`qanat quantize`, then the flags that serve such checkpoints elsewhere; the tokens are those of `LLM`."""
    folder = tmp_path / "w8a8"
    made = run_command(["quantize", str(demo_model), str(folder), "--scheme", "w8a8", "--num-threads", "1"])
    assert made.returncode == 0, made.stderr
    prompts = [question for question, _ in SUMS]
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    with LLM(str(demo_model), quantization="w8a8", max_model_len=512, max_num_seqs=4, num_threads=1) as llm:
        expected = [list(result.outputs[0].token_ids) for result in llm.generate(prompts, params)]
    flags = ["--served-model-name", "demo", "--quantization", "ascend", "--max-model-len", "512"]
    graphs = ["--compilation-config", '{"cudagraph_mode": "FULL_DECODE_ONLY"}']
    with ServerProcess([str(folder), *flags, *graphs]) as server:
        body = {"model": "demo", "prompt": prompts, "temperature": 0, "max_tokens": 32, "ignore_eos": True}
        body["return_token_ids"] = True
        reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        assert [choice["token_ids"] for choice in reply.json()["choices"]] == expected
        metrics = httpx.get(f"{server.base_url}/metrics", timeout=60).text
        log = server.output
    replays = re.findall(r'^qanat:graph_replays_total\{.*kind="full".*\} (\S+)$', metrics, re.MULTILINE)
    assert sum(map(float, replays)) > 0, metrics
    assert "W8A8_DYNAMIC" in log
