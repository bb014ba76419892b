"""The engine: versions, order, comments that silence, several files."""

from __future__ import annotations

import pytest

from qanat.deploy.lint.engine import ImageError, lint
from qanat.deploy.lint.finding import Finding
from qanat.deploy.sources.documents import read_document

SERVER = "vllm serve Qwen/Qwen3-32B -tp 8"


def check(text: str, image: str | None = None, path: str = "start.sh") -> list[Finding]:
    return lint([read_document(path, text)], image)


def rules(found: list[Finding]) -> list[str]:
    return [finding.rule_id for finding in found]


def test_findings_come_in_order_of_lines() -> None:
    found = check(f"export VLLM_USE_V1=1\nexport HCCL_BUFFSIZE=big\n{SERVER} --swap-space 4 --max_num_seqs 8")
    assert rules(found) == ["ENV003", "ENV024", "CLI009", "CLI006"]
    assert [finding.place.line for finding in found] == [1, 2, 3, 3]


@pytest.mark.parametrize(
    "image", ["v0.18.0rc1", "0.18.0", "quay.io/ascend/vllm-ascend:v0.18.0rc1-a3-openeuler"]
)
def test_an_image_is_named_in_several_ways(image: str) -> None:
    found = check(f"{SERVER} --additional-config '{{\"enable_flashcomm1\": true}}'", image)
    assert "MOE012" in rules(found)
    assert found[0].version is not None and found[0].version.startswith("0.18.0")


def test_an_image_without_a_version_is_refused() -> None:
    with pytest.raises(ImageError, match=r"expected something like v0\.18\.0rc1"):
        check(SERVER, "latest")


def test_the_container_of_the_file_says_which_version_runs() -> None:
    text = f"docker run quay.io/ascend/vllm-ascend:v0.18.0rc1-a3 bash\nexport VLLM_VERSION=0.11.0\n{SERVER}"
    assert "ENV008" in rules(check(text))
    assert "ENV008" not in rules(check(text, "v0.11.0"))


def test_another_file_says_which_version_runs() -> None:
    container = read_document("run.sh", "docker run quay.io/ascend/vllm-ascend:v0.18.0rc1-a3 bash")
    server = read_document("start.sh", "export VLLM_VERSION=0.11.0")
    assert rules(lint([server])) == ["ENV026"]
    assert rules(lint([container, server])) == ["ENV008"]


def test_a_comment_says_which_version_runs() -> None:
    assert rules(check("# in quay.io/ascend/vllm-ascend:v0.18.0-a3\nexport VLLM_VERSION=0.11.0")) == [
        "ENV008"
    ]


def test_a_guide_that_contradicts_itself_is_checked_for_both_versions() -> None:
    text = (
        "Needs vllm-ascend 0.18.0rc1.\n\n```\ndocker run quay.io/ascend/vllm-ascend:v0.11.0 bash\n"
        "export VLLM_USE_V1=1\n```\n"
    )
    assert rules(check(text, path="guide.md")) == ["HOST011", "ENV003"]


@pytest.mark.parametrize(
    "text",
    [
        "export VLLM_USE_V1=1  # qanat: ignore[ENV003]",
        "# qanat: ignore[ENV003, ENV008]\nexport VLLM_USE_V1=1",
        "# qanat: ignore-file[ENV003]\n\n\nexport VLLM_USE_V1=1",
    ],
)
def test_a_comment_silences_a_rule(text: str) -> None:
    assert rules(check(text)) == []


def test_a_comment_before_a_command_covers_all_its_lines() -> None:
    text = "# qanat: ignore[CLI006]\nvllm serve Qwen/Qwen3-32B \\\n  --port 8000 \\\n  --max_model_len 4096\n"
    assert rules(check(text)) == []
    assert rules(check(text.replace("CLI006", "CLI005"))) == ["CLI006"]


def test_a_markdown_comment_silences_a_rule() -> None:
    text = "# Guide\n\n<!-- qanat: ignore-file[ENV003] -->\n\n```bash\nexport VLLM_USE_V1=1\n```\n"
    assert rules(check(text, path="guide.md")) == []


def test_the_nearest_name_is_told() -> None:
    found = check(f"export VLLM_ASCEND_ENABLE_NZZ=1\n{SERVER} --max-modle-len 4096")
    assert "VLLM_ASCEND_ENABLE_NZ?" in found[0].fix.text
    assert "--max-model-len" in found[1].fix.text


def test_what_runs_nowhere_near_vllm_is_left_alone() -> None:
    assert check("export NCCL_SOCKET_IFNAME=eth0\npython train.py --swap-space 3\ngit commit -m 'x'\n") == []


def test_nothing_to_check_is_fine() -> None:
    assert lint([]) == []
    assert check("") == []


@pytest.mark.parametrize("user", ["", "docker run $VLLM_SETTINGS_IMAGE bash", "# ${VLLM_SETTINGS_IMAGE}"])
def test_a_variable_that_another_file_fills_in_is_no_unknown_one(user: str) -> None:
    documents = [
        read_document("settings.sh", "export VLLM_SETTINGS_IMAGE=a"),
        read_document("run.sh", f"true\n{user}"),
    ]
    assert rules(lint(documents)) == ([] if user else ["ENV023"])
