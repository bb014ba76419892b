"""Memory predicted from a command line: where it may be told, and where nothing is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.files import Versions, view_document
from qanat.deploy.lint.memory import Fit, fit_of, weight_variant
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.documents import read_document

A2 = "# Atlas 800 A2\n"
BIG = "vllm serve Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp -tp 4 --enable-expert-parallel"
RECOVERED = (
    Path(__file__).resolve().parents[3].parent / "shared/reference/vllm_ascend/recovered_397b_sections.yaml"
)


def view(text: str, version: str = "0.23.0") -> LaunchView:
    document = read_document("start.sh", text)
    parsed = must_parse(version)
    (launch,) = view_document(document, load_knowledge(), Versions(document, parsed, parsed)).launches
    return launch


def fit(text: str) -> Fit | None:
    return fit_of(view(text))


def rules(text: str, image: str = "v0.23.0") -> set[str]:
    return {one.rule_id for one in lint([read_document("start.sh", text)], image)}


@pytest.mark.parametrize(
    ("model", "variant"),
    [
        ("Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp", "w8a8"),
        ("/data/Qwen3.5-397B-A17B-w4a8-mtp/", "w4a8"),
        ("Eco-Tech/Qwen3.5-397B-A17B-w8a8-mxfp8", "w8a8-mxfp8"),
        ("Eco-Tech/Qwen3.5-397B-A17B-w4a4-mxfp4", "w4a4-mxfp4"),
        ("vllm-ascend/Qwen3-32B-W8A8", "w8a8"),
        ("Qwen/Qwen3-32B", "bf16"),
        ("Qwen/Qwen3-32B-AWQ", None),
        ("Qwen/Qwen3-32B-FP8", None),
        ("Qwen/Qwen3-32B --quantization ascend", None),
        ("vllm-ascend/Qwen3-32B-W8A8 --quantization ascend", "w8a8"),
    ],
)
def test_the_format_of_weights_is_in_the_name(model: str, variant: str | None) -> None:
    assert weight_variant(view(f"vllm serve {model}")) == variant


@pytest.mark.parametrize(
    "text",
    [
        f"{BIG}",
        f"{A2}{BIG.replace('-tp 4', '-tp $TP')}",
        f"{A2}{BIG} --gpu-memory-utilization $SHARE",
        f"{A2}{BIG} --max-model-len <length>",
        f"{A2}{BIG} --kv-cache-memory-bytes 1G",
        f"{A2}{BIG} --cpu-offload-gb 20",
        f"{A2}{BIG} --pipeline-parallel-size 2",
        f"{A2}{BIG} --speculative-config $SPECULATION",
        f"{A2}{BIG.replace('w8a8', 'awq')}",
        f"{A2}vllm serve ./model -tp 4",
        f"{A2}{BIG.replace('-tp 4', '-tp 3')}",
    ],
)
def test_where_a_part_is_unknown_nothing_is_said(text: str) -> None:
    assert fit(text) is None
    assert not {"MEM001", "MEM002", "HYB011"} & rules(text)


def test_weights_that_leave_nothing_are_named_in_gigabytes() -> None:
    (found,) = [
        one for one in lint([read_document("start.sh", A2 + BIG)], "v0.23.0") if one.rule_id == "MEM001"
    ]
    computed = fit(A2 + BIG)
    assert computed is not None and computed.memory.pool_bytes < 0
    weights = computed.memory.items[0].size_bytes / 1e9
    assert f"weights take {weights:.1f} GB" in found.message and "0.92 on A2" in found.message


def test_the_window_of_the_model_counts_where_none_is_given() -> None:
    text = f"{A2}vllm serve Qwen/Qwen3.5-27B -tp 1 --gpu-memory-utilization 0.95"
    (found,) = [one for one in lint([read_document("start.sh", text)], "v0.23.0") if one.rule_id == "MEM002"]
    assert "262144 tokens by default" in found.message
    advice = found.fix.text
    assert advice.startswith("--max-model-len ")
    assert "MEM002" not in rules(f"{text} {advice}")


def test_the_chip_of_the_image_counts() -> None:
    script = f"docker run quay.io/ascend/vllm-ascend:v0.23.0-a3 {BIG}"
    assert "MEM001" in rules(script)
    assert "MEM001" not in rules(BIG, "v0.23.0")
    assert "MEM001" in rules(BIG, "v0.23.0-a3")


@pytest.mark.skipif(not RECOVERED.is_file(), reason="the recovered sections are not beside the checkout")
def test_every_recommended_configuration_fits() -> None:
    rows = yaml.safe_load(RECOVERED.read_text(encoding="utf-8"))["section_9_1"]
    checked = 0
    for row in rows:
        if not all(name in row for name in ("tp", "max_num_seqs", "weights")) or not isinstance(
            row["dp"], int
        ):
            continue
        chip = "A3" if "A3" in str(row["npus"]) else "A2"
        speculation = json.dumps({"method": "qwen3_5_mtp", "num_speculative_tokens": row["mtp"]})
        text = (
            f"# Atlas 800 {chip}\nvllm serve Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp -tp {row['tp']} -dp {row['dp']} "
            f"--enable-expert-parallel --max-num-seqs {row['max_num_seqs']} --max-model-len {row['max_model_len']} "
            f"--max-num-batched-tokens {row['max_num_batched_tokens']} --gpu-memory-utilization 0.9 "
            f"--speculative-config '{speculation}' "
            '--compilation-config \'{"cudagraph_mode": "FULL_DECODE_ONLY"}\''
        )
        assert not {"MEM001", "MEM002", "HYB011"} & rules(text), row
        checked += 1
    assert checked
