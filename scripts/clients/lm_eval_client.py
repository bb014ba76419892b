"""lm-eval against a server: lm_eval_client.py BASE_URL MODEL MODEL_FOLDER OFFLINE_SCORES.

Its two API models score the tasks of sums.py; the scores must be those that the LLM class gives offline.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import sums
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

VERSION = importlib.metadata.version("lm_eval")
TOLERANCE = 1e-3
CHOICE_TASK = """
task: qanat_choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{path}"}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
CHAT_TASK = """
task: qanat_chats
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{path}"}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["<never>"], max_gen_toks: 256, temperature: 0.0, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def write_tasks(folder: Path) -> None:
    """Task files and their data."""
    for name, text, documents in (
        ("choices", CHOICE_TASK, sums.choices()),
        ("chats", CHAT_TASK, sums.chats()),
    ):
        path = folder / f"{name}.jsonl"
        path.write_text("\n".join(json.dumps(document) for document in documents))
        (folder / f"{name}.yaml").write_text(text.format(path=path))


def plain_tokenizer(model_folder: str, folder: Path) -> str:
    """A folder from which transformers reads tokenizer.json as it is.

    From the demo model's own folder its class for Qwen3.5 makes a tokenizer without the merges.
    """
    target = folder / "tokenizer"
    target.mkdir()
    shutil.copy(Path(model_folder) / "tokenizer.json", target)
    (target / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return str(target)


def evaluate(kind: str, arguments: dict[str, Any], task: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Results and samples of one task."""
    results = simple_evaluate(
        model=kind,
        model_args=arguments,
        tasks=[task],
        task_manager=TaskManager(include_path=str(folder)),
        log_samples=True,
        bootstrap_iters=0,
        **options,
    )
    assert results is not None
    return dict(results)


def main() -> int:
    """Runs both; the exit code is 1 if a score differs."""
    base_url, model, model_folder = sys.argv[1:4]
    offline = json.loads(Path(sys.argv[4]).read_text())
    common = {"model": model, "num_concurrent": 4, "max_retries": 1}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder)
        completions = {
            **common,
            "base_url": f"{base_url}/v1/completions",
            "tokenizer_backend": "huggingface",
            "tokenizer": plain_tokenizer(model_folder, folder),
            "max_length": 1024,
        }
        choices = evaluate("local-completions", completions, "qanat_choices", folder)
        chat = {**common, "base_url": f"{base_url}/v1/chat/completions"}
        chats = evaluate("local-chat-completions", chat, "qanat_chats", folder, apply_chat_template=True)
    accuracy = choices["results"]["qanat_choices"]["acc,none"]
    samples = sorted(choices["samples"]["qanat_choices"], key=lambda sample: sample["doc_id"])
    scores = [[float(response[0]) for response in sample["filtered_resps"]] for sample in samples]
    difference = max(
        abs(ours - theirs)
        for row, other in zip(scores, offline["scores"], strict=True)
        for ours, theirs in zip(row, other, strict=True)
    )
    is_equal = accuracy == offline["accuracy"] and difference < TOLERANCE
    print(
        f"lm-eval {VERSION} local-completions: {'ok' if is_equal else 'FAILED'}: accuracy {accuracy}, offline "
        f"{offline['accuracy']}; log-probabilities differ by at most {difference:.1e}"
    )
    replies = sorted(chats["samples"]["qanat_chats"], key=lambda sample: sample["doc_id"])
    texts = [reply["filtered_resps"][0] for reply in replies]
    match = chats["results"]["qanat_chats"]["exact_match,none"]
    is_same = texts == offline["replies"]
    print(
        f"lm-eval {VERSION} local-chat-completions: {'ok' if is_same else 'FAILED'}: {match} right, "
        f"replies {'equal to' if is_same else 'differ from'} those offline"
    )
    return int(not (is_equal and is_same))


if __name__ == "__main__":
    sys.exit(main())
