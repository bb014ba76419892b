"""Safe fixes until none is left, and no further than that does good."""

from __future__ import annotations

from collections.abc import Mapping

from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.fix_all import Checked, fix_all, own_fix
from qanat.deploy.sources.documents import read_documents


def check(texts: Mapping[str, str]) -> Checked:
    documents = read_documents(texts)
    return Checked(documents, lint(documents, "v0.23.0"))


def test_a_fix_makes_room_for_the_next_one() -> None:
    texts = {"run.sh": "vllm serve Qwen/Qwen3-32B –max_num_seqs 8\n"}
    done = fix_all(texts, check(texts), check)
    assert done.texts["run.sh"] == "vllm serve Qwen/Qwen3-32B --max-num-seqs 8\n"
    assert done.num_fixes == 2 and done.num_files == 1 and not done.is_stopped
    assert not any(one.fix.edits for one in done.left.findings)


def test_two_files_are_changed_together() -> None:
    texts = {
        "env.sh": "export TASK_QUEUE_ENABLE=2\nexport VLLM_USE_V1=1\n",
        "run.sh": "source env.sh\nvllm serve Qwen/Qwen3-32B –port 1\n",
    }
    done = fix_all(texts, check(texts), check)
    assert done.texts == {
        "env.sh": "export TASK_QUEUE_ENABLE=1\n",
        "run.sh": "source env.sh\nvllm serve Qwen/Qwen3-32B --port 1\n",
    }
    assert done.num_files == 2


def test_fixes_that_make_more_faults_are_left() -> None:
    texts = {"run.sh": "vllm serve Qwen/Qwen3-32B –port 1\n"}
    before = check(texts)
    worse = check({"run.sh": "vllm serve Qwen/Qwen3-32B --swap-space 1 --max-num-seqs x --foo\n"})
    done = fix_all(texts, before, lambda changed: worse)
    assert done.texts == texts and done.left is before and done.is_stopped
    assert "more findings" in done.summary(len(before.findings))


def test_files_that_were_not_named_keep_what_they_say() -> None:
    texts = {"run.sh": "source env.sh\nvllm serve Qwen/Qwen3-32B\n"}
    documents = read_documents(texts, lambda origin, path: "export TASK_QUEUE_ENABLE=2\n")
    (finding,) = [one for one in lint(documents, "v0.23.0") if one.rule_id == "ENV001"]
    assert finding.fix.edits and not own_fix(finding, texts).fix.edits
    assert own_fix(finding, {**texts, "env.sh": ""}).fix.edits
