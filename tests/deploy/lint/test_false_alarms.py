"""What looks like a fault and is none: found in public tutorials."""

from __future__ import annotations

import pytest

from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.fixes import apply_edits
from qanat.deploy.sources.documents import read_document

DENSE = "vllm serve Qwen/Qwen3-32B"
EIGHT = "export ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7"
RIGHT = {
    "positional parameters": f'{DENSE} --port $2 --tensor-parallel-size "$7" --data-parallel-rpc-port ${{3}}',
    "positional parameter in a variable": f"export ASCEND_RT_VISIBLE_DEVICES=$1\n{DENSE}",
    "a size nobody sets": f"{DENSE} --tensor-parallel-size $TP --max-num-seqs $SEQS --max-num-batched-tokens 8",
    "a template's placeholder": "docker run -it quay.io/ascend/vllm-ascend:{{ vllm_ascend_version }} bash",
    "a placeholder in angle brackets": "docker run -it quay.io/ascend/vllm-ascend:<tag> bash",
    "another program's variable": "export IMAGE=a\nexport IMAGE=b\nexport NCCL_SOCKET_IFNAME=eth0",
    "a list that grows": "export LD_LIBRARY_PATH=/a:$LD_LIBRARY_PATH\nexport LD_LIBRARY_PATH=/b:$LD_LIBRARY_PATH",
    "a variable of the script": 'VLLM_IMAGE=a\nexport VLLM_IMAGE\necho "$VLLM_IMAGE"',
    "another base port": (
        "export ASCEND_BASE_PORT=11000\n" + DENSE + " --kv-transfer-config "
        '\'{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_both", "kv_port": 30000}\''
    ),
    "a port of the last range": (
        DENSE + " --kv-transfer-config "
        '\'{"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_both", "kv_port": 36000}\''
    ),
    "ranks over nodes": f"{EIGHT}\n{DENSE} -tp 16 --nnodes 2 --node-rank 0",
    "ranks over Ray": f"{EIGHT}\n{DENSE} -tp 8 -pp 2 --distributed-executor-backend ray",
    "numbers for people": f"{DENSE} --max-model-len 32k --max-num-batched-tokens 8192",
    "short options": f"{DENSE} -tp=8 -dp 1 --no-enable-expert-parallel -cc.cudagraph_mode=FULL_DECODE_ONLY",
    "an optimisation level": f"{DENSE} -O2",
    "a key by its path": f"{DENSE} --additional-config.enable_cpu_binding true",
}
PROSE = [
    "Pass `--speculative-config '{\"num_speculative_tokens\": 1, ...}'` to the server.",
    "Needs CANN 8.5.1 or later, tested with CANN 9.1.0.",
    "The value of --gpu-memory-utilization may be lowered when memory runs out under load.",
    "| TP | DP | notes | seqs |\n|---|---|---|---|\n| 2 | 1 | small | 16 |",
]


@pytest.mark.parametrize("name", RIGHT)
def test_a_script_that_is_right(name: str) -> None:
    found = lint([read_document("start.sh", RIGHT[name])], "v0.23.0")
    assert [(one.rule_id, one.message) for one in found if one.severity is not Severity.INFO] == []


@pytest.mark.parametrize("text", PROSE)
def test_a_text_that_is_right(text: str) -> None:
    guide = (
        f"# Guide\n\n{text}\n\n```bash\nvllm serve Qwen/Qwen3.5-35B-A3B -tp 2 --enable-expert-parallel\n```\n"
    )
    found = lint([read_document("guide.md", guide)], "v0.23.0")
    assert [(one.rule_id, one.message) for one in found if one.severity is not Severity.INFO] == []


@pytest.mark.parametrize(
    ("key", "value", "is_outside"),
    [
        ('"weight_nz_mode"', "3", True),
        ('"weight_nz_mode"', "2", False),
        ('"eplb_config": {"eplb_policy_type"', "4}", True),
        ('"eplb_config": {"algorithm_execution_interval"', "0}", True),
        ('"eplb_config": {"algorithm_execution_interval"', "50}", False),
    ],
)
def test_numbers_have_their_bounds(key: str, value: str, is_outside: bool) -> None:
    text = f"{DENSE} --additional-config '{{{key}: {value}}}'"
    found = {one.rule_id for one in lint([read_document("start.sh", text)], "v0.23.0")}
    assert ("CLI022" in found) is is_outside


@pytest.mark.parametrize(
    ("flags", "rule", "fixed"),
    [
        ("--enable-prefix-caching false", "CLI018", "--no-enable-prefix-caching"),
        ("--async-scheduling=true", "CLI018", "--async-scheduling"),
        ("--max-num-seqs 1k", "CLI018", None),
        ("--max-model-len 32k", None, None),
        ("--dtype bf16", "CLI018", None),
        ("--ssl-keyfile", "CLI018", None),
        ("-cc 3", "CLI019", None),
        ("-O3", None, None),
        ("--limit-mm-per-prompt image=1", "CLI019", None),
        ("--limit-mm-per-prompt.image 1", None, None),
        ("--allowed-origins '*'", "CLI019", None),
        ("--allowed-origins '[\"*\"]'", None, None),
        ('--compilation-config \'{"cudagraph_capture_sizes": "8"}\'', "CLI027", None),
        ('--compilation-config \'{"local_cache_dir": "/tmp"}\'', "CLI003", None),
    ],
)
def test_what_the_parser_of_vllm_refuses(flags: str, rule: str | None, fixed: str | None) -> None:
    """Tried with vLLM 0.18.0 and 0.23.0, see scripts/check-vllm-parser."""
    text = f"vllm serve Qwen/Qwen3-32B {flags}\n"
    found = [
        one for one in lint([read_document("start.sh", text)], "v0.23.0") if one.severity is not Severity.INFO
    ]
    assert [one.rule_id for one in found] == ([rule] if rule else [])
    if fixed is not None:
        assert apply_edits(text, found[0].fix.edits) == f"vllm serve Qwen/Qwen3-32B {fixed}\n"
