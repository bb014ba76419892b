"""EAGLE-3 through the front door: a tiny Qwen3 with the demo's tokenizer, and a draft of it that is mostly right."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from qanat import LLM, SamplingParams
from qanat.config.model_config import ModelConfig
from qanat.core.speculation import SpeculationCounts
from qanat.kernels.native import module
from tests.support.eagle3 import KV_HEADS, TARGET, write_draft, write_echo, write_forgetful_target
from tests.support.server_process import ServerProcess, run_command

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
SETTINGS = {"max_model_len": 512, "max_num_seqs": 4, "num_threads": 1}
PROMPTS = ["What is 417 + 385?", "Sort these words: pear apple fig." * 12, "Hello!"]
PARAMS = [
    SamplingParams(max_tokens=40, temperature=0, logprobs=2, ignore_eos=True),
    SamplingParams(max_tokens=24, temperature=0.9, seed=11, presence_penalty=0.6, n=2, logprobs=1),
]


@dataclass(frozen=True)
class Folders:
    target: Path
    draft: Path
    random_draft: Path


@pytest.fixture(scope="module")
def folders(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Folders:
    if not module.is_built():
        pytest.skip(module.why_not())
    folder = tmp_path_factory.mktemp("eagle3")
    demo = ModelConfig.from_folder(demo_model)
    raw = TARGET | {
        "torch_dtype": "float32",
        "vocab_size": demo.vocab_size,
        "eos_token_id": list(demo.eos_token_ids),
    }
    found = Folders(folder / "target", folder / "draft", folder / "random")
    head = write_forgetful_target(found.target, raw)
    for name in TOKENIZER_FILES:
        shutil.copy(demo_model / name, found.target / name)
    config = ModelConfig.from_dict(raw)
    write_echo(found.draft, config, head)
    write_draft(found.random_draft, config, "speculators", 400)
    return found


def flag(folder: Path, **keys: Any) -> dict[str, Any]:
    return {"method": "eagle3", "model": str(folder), "num_speculative_tokens": 3, "adaptive": False} | keys


def answers(
    folder: Path, speculation: dict[str, Any] | None, **options: Any
) -> tuple[list[str], SpeculationCounts]:
    """Everything that is said, twice, so that prompts find their prefixes, and what became of drafts."""
    said = []
    with LLM(str(folder), speculative_config=speculation, **(SETTINGS | options)) as model:
        for params in (*PARAMS, *PARAMS):
            for reply in model.generate(PROMPTS, params):
                said += [
                    repr((one.token_ids, one.text, one.logprobs, one.finish_reason)) for one in reply.outputs
                ]
        return said, model.speculation_counts()


def test_right_drafts_save_steps_and_change_nothing(folders: Folders) -> None:
    plain, none = answers(folders.target, None)
    assert none == SpeculationCounts()
    drafted, counts = answers(folders.target, flag(folders.draft))
    assert drafted == plain
    assert counts.num_accepted_tokens > 0.3 * counts.num_draft_tokens


def test_a_hit_has_the_acceptance_of_a_cold_start(folders: Folders, tmp_path: Path) -> None:
    """In the same engine, and in one that has read the blocks from disk."""
    settings = SETTINGS | {"speculative_config": flag(folders.draft), "prefix_cache_dir": str(tmp_path)}
    asked = []
    for num_times in (2, 1):
        with LLM(str(folders.target), **settings) as model:
            for _ in range(num_times):
                before = model.speculation_counts()
                [reply] = model.generate([PROMPTS[1]], PARAMS[0])
                after = model.speculation_counts()
                num_drafted = after.num_draft_tokens - before.num_draft_tokens
                num_accepted = after.num_accepted_tokens - before.num_accepted_tokens
                said = repr((reply.outputs[0].token_ids, reply.outputs[0].logprobs))
                asked.append((said, num_drafted, num_accepted, reply.num_cached_tokens))
    cold, warm, restarted = asked
    assert warm[:3] == cold[:3] and restarted == warm
    assert cold[3] == 0 and warm[3] >= 64
    assert cold[2] > 0.2 * cold[1], "else equal counts would say little"


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"quantization": "w8a8"},
        {"kv_cache_dtype": "int8"},
        {"enforce_eager": True},
        {"tensor_parallel_size": 2},
        {"dtype": "bfloat16"},
        {"enable_prefix_caching": False, "max_num_batched_tokens": 32},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_right", [True, False])
def test_other_settings(folders: Folders, how: dict[str, Any], is_right: bool) -> None:
    plain, _ = answers(folders.target, None, **how)
    folder = folders.draft if is_right else folders.random_draft
    drafted, counts = answers(folders.target, flag(folder), **how)
    assert drafted == plain
    assert counts.num_draft_tokens > 0
    assert not is_right or counts.num_accepted_tokens > 0.3 * counts.num_draft_tokens


def test_a_server_drafts_counts_and_says_so(folders: Folders) -> None:
    arguments = [str(folders.target), "--served-model-name", "tiny", "--max-model-len", "512"]
    body = {"model": "tiny", "prompt": "Hello!", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
    value = json.dumps(flag(folders.draft, draft_tensor_parallel_size=1))
    with ServerProcess([*arguments, "--speculative-config", value]) as server:
        reply = httpx.post(f"{server.base_url}/v1/completions", json=body, timeout=60)
        assert reply.status_code == 200, reply.text
        details = reply.json()["usage"]["completion_tokens_details"]
        metrics = httpx.get(f"{server.base_url}/metrics", timeout=60).text
    assert details["accepted_prediction_tokens"] > 0
    name = "vllm:spec_decode_num_accepted_tokens_total"
    accepted = next(line for line in metrics.splitlines() if line.startswith(name))
    assert float(accepted.split()[-1]) == details["accepted_prediction_tokens"]


def test_the_plan_has_the_draft_model(folders: Folders) -> None:
    speculation = ["--speculative-config", json.dumps(flag(folders.random_draft))]
    report = json.loads(run_command(["plan", str(folders.target), "--json", *speculation]).stdout)
    row = next(row for row in report["settings"] if row["flag"] == "--speculative-config")
    assert row["value"]["method"] == "eagle3" and row["value"]["model"] == str(folders.random_draft)
    said = next(each for each in report["decisions"] if each["field"] == "--speculative-config.model")
    assert said["got"].startswith("400 of 1,") and "layers 2, 2, 1" in said["got"]
    keys_and_values = 2 * 64 * 16 * 4  # of a head in a block of fp32
    entry_count = 4  # int32: how many of the block's tokens the draft layer has entries of
    last_row = 64 * 4  # fp32: what the first entry behind the block is made from
    assert report["memory"]["block_bytes"] == keys_and_values * (4 * 2 + KV_HEADS) + entry_count + last_row


def test_a_draft_of_another_model_is_refused(folders: Folders, demo_model: Path) -> None:
    value = json.dumps(flag(folders.draft))
    result = run_command(["serve", str(demo_model), "--port", "0", "--speculative-config", value])
    output = result.stdout + result.stderr
    assert result.returncode == 2 and "Traceback" not in output
    assert "was made for a model with hidden size 64" in output and "--speculative-config" in output
