from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors import safe_open

from benchmarks.peers.__main__ import main, shape_of, table
from benchmarks.peers.checkpoint import write_checkpoint
from benchmarks.peers.llama_cpp import llama_cpp
from benchmarks.peers.machine import Shape, limit_of
from benchmarks.peers.workloads import WORKLOADS, MissingPeerError, Workload
from qanat.config.model_config import ModelConfig
from qanat.core.samples import Samples
from qanat.kernels.native.limits import FLOAT, INT8, Limits
from qanat.kernels.native.module import is_built
from tests.config.tiny_folder import TINY_CONFIG
from tests.house.checkout import ROOT

DECODE_1, DECODE_16, PREFILL_512 = WORKLOADS
LIMITS = Limits(
    1, 1, Samples.of([1000.0]), {("a", FLOAT): Samples.of([1.0]), ("a", INT8): Samples.of([512.0 * 8])}
)
SHAPE = Shape(state_bytes=2.0, kv_bytes_per_token=0.25, prefill_macs=512.0 * 4)


@dataclass
class FixedPeer:
    name: str
    weight_bytes: int
    is_integer: bool

    def tokens_per_s(self, workload: Workload) -> float:
        return 100.0 * workload.batch_size

    def close(self) -> None: ...


def test_decode_is_limited_by_what_a_step_reads() -> None:
    peer = FixedPeer("x", 80, True)
    own = 2 * 2.0 + (32 + 32) * 0.25
    assert limit_of(peer, DECODE_1, SHAPE, LIMITS) == (pytest.approx(1000 / (80 + own)), "read bandwidth")
    own = 2 * 2.0 + (32 + 16) * 0.25
    assert limit_of(peer, DECODE_16, SHAPE, LIMITS)[0] == pytest.approx(16 * 1000 / (80 + 16 * own))


def test_prefill_is_limited_by_multiply_adds_of_integers() -> None:
    rate, binds = limit_of(FixedPeer("x", 80, True), PREFILL_512, SHAPE, LIMITS)
    assert (rate, binds) == (pytest.approx(512 * 8 / 4), "int8 multiply-adds")
    assert limit_of(FixedPeer("x", 80, False), PREFILL_512, SHAPE, LIMITS)[1] == ""


def test_the_table_compares_with_llama_cpp() -> None:
    peers = [FixedPeer("Qanat W8A8", 80, True), FixedPeer("llama.cpp Q8_0", 90, True)]
    rates = {
        (peers[0].name, DECODE_1.name): Samples.of([3.0]),
        (peers[1].name, DECODE_1.name): Samples.of([2.0]),
    }
    lines = table(peers, [DECODE_1], rates, SHAPE, LIMITS)
    assert lines[2].startswith(
        "| decode, batch 1 | Qanat W8A8 | 3.00 | 0% | 1.50 | 30% of 10.0 | read bandwidth |"
    )
    assert len(lines) == 4


def test_a_checkpoint_has_every_weight_of_the_shape_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(TINY_CONFIG))
    folder = write_checkpoint(shape_of(str(path)), tmp_path / "made")
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert write_checkpoint(shape_of(str(path)), folder) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    config = ModelConfig.from_folder(folder)
    with safe_open(folder / "model.safetensors", "pt") as weights:
        names = set(weights.keys())
        assert weights.get_slice("model.embed_tokens.weight").get_shape() == [320, 64]
    assert "model.layers.0.linear_attn.in_proj_qkv.weight" in names
    assert "model.layers.3.self_attn.q_proj.weight" in names
    assert ("lm_head.weight" in names) != config.tie_word_embeddings


def test_the_demo_models_shape_is_its_text_part() -> None:
    raw = shape_of("demo")
    assert raw["architectures"] == ["Qwen3_5MoeForCausalLM"]
    assert ModelConfig.from_dict(raw).num_mtp_layers == 0


def test_an_engine_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPeerError, match="llama-bench"):
        llama_cpp(tmp_path, None, None, tmp_path, "Q8_0", 1)


def test_an_engine_that_nobody_knows_is_refused_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--peers", "vllm"])
    assert ended.value.code == 2
    assert "vLLM bf16" in capsys.readouterr().err


def test_without_qanat_the_limits_are_missed_and_the_reasons_said(tmp_path: Path) -> None:
    shape = tmp_path / "tiny.json"
    shape.write_text(json.dumps(TINY_CONFIG))
    arguments = ["--shape", str(shape), "--work-folder", str(tmp_path), "--peers", "transformers fp32"]
    with pytest.raises(SystemExit, match="need a format of Qanat.*transformers fp32: no interpreter"):
        main(arguments)


@pytest.mark.slow
def test_one_command_writes_the_tables(tmp_path: Path) -> None:
    if not is_built():
        pytest.skip("the native kernels are not built")
    shape = tmp_path / "tiny.json"
    shape.write_text(json.dumps(TINY_CONFIG))
    output = tmp_path / "table.md"
    command = [
        sys.executable,
        "-m",
        "benchmarks.peers",
        "--shape",
        str(shape),
        "--rounds",
        "1",
        "--threads",
        "1",
    ]
    command += ["--work-folder", str(tmp_path), "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240)
    text = output.read_text()
    for workload in WORKLOADS:
        for kind in ("W8A8", "W4A8", "bf16"):
            assert f"| {workload.name} | Qanat {kind} |" in text
    assert "| memory read |" in text
    assert "Not measured: llama.cpp Q8_0: --llama-cpp names no folder" in text
    for name in ("transformers bf16", "transformers fp32", "vLLM bf16"):
        assert f"Not measured: {name}: no interpreter" in text
