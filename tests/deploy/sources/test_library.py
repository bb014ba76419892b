"""Variables that come from other files: sourced scripts, files for containers, ConfigMaps."""

from __future__ import annotations

import pytest

from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_documents
from qanat.deploy.sources.launch import Document, Launch

SERVER = 'vllm serve Qwen/Qwen3-32B -tp "$TP" --port "$PORT"'
SETTINGS = "export TP=8\nPORT=8000\nexport TASK_QUEUE_ENABLE=2\n"


def read(**texts: str) -> dict[str, Document]:
    """Files by their names, with two underscores for a slash and one for a dot."""
    named = {name.replace("__", "/").replace("_", "."): text for name, text in texts.items()}
    return {document.path: document for document in read_documents(named)}


def server(**texts: str) -> Launch:
    documents = read(**texts)
    (launch,) = [one for document in documents.values() for one in document.launches if one.kind == "serve"]
    return launch


@pytest.mark.parametrize(
    "line",
    [
        "source env.sh",
        ". ./env.sh",
        'source "$(dirname "$0")/env.sh"',
        'source "$(dirname "${BASH_SOURCE[0]}")"/env.sh',
        'HERE="$(cd "$(dirname "$0")" && pwd)"\nsource "$HERE/env.sh"',
        'HERE=$(cd -- "$(dirname -- "$0")" >/dev/null && pwd)\n. "${HERE}/env.sh"',
        'source "${0%/*}/env.sh"',
        "if [ -f env.sh ]; then . env.sh; fi",
    ],
)
def test_a_sourced_file_sets_variables(line: str) -> None:
    launch = server(start_sh=f"{line}\n{SERVER}\n", env_sh=SETTINGS)
    assert [flag.value.text for flag in launch.flags if flag.value] == ["8", "8000"]
    assert set(launch.env) == {"TP", "TASK_QUEUE_ENABLE"}
    assert launch.env["TASK_QUEUE_ENABLE"].place.path == "env.sh"


@pytest.mark.parametrize(
    "line",
    [
        'source "$(dirname "$0")/../../env.sh"',
        'HERE="$(cd "$(dirname "$0")/../.." && pwd)"\nsource "$HERE/env.sh"',
        'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"\nsource "$HERE/../env.sh"',
    ],
)
def test_folders_above_are_found(line: str) -> None:
    launch = server(nodes__first__start_sh=f"{line}\n{SERVER}\n", env_sh=SETTINGS)
    assert launch.env["TP"].value.text == "8"


@pytest.mark.parametrize(
    "line", ["source other.sh", "source /env.sh", 'source "$SOMEWHERE/env.sh"', "source"]
)
def test_what_cannot_be_found_is_left_alone(line: str) -> None:
    launch = server(start_sh=f"{line}\n{SERVER}\n", env_sh=SETTINGS)
    assert launch.flags[0].value is not None and not launch.flags[0].value.is_known


def test_files_that_source_each_other_come_to_an_end() -> None:
    launch = server(
        start_sh=f"source a.sh\n{SERVER}\n",
        a_sh="source b.sh\nexport TP=4\n",
        b_sh="source a.sh\nsource start.sh\nexport PORT=1\n",
    )
    assert {name: one.value.text for name, one in launch.env.items()} == {"PORT": "1", "TP": "4"}


def test_set_a_exports_what_follows() -> None:
    launch = server(start_sh=f"set -a\nsource env.sh\nset +a\nLATER=1\n{SERVER}\n", env_sh=SETTINGS)
    assert set(launch.env) == {"TP", "PORT", "TASK_QUEUE_ENABLE"}


def test_a_finding_stands_in_the_file_that_is_wrong_and_once() -> None:
    scripts = {f"{name}.sh": f"source env.sh\n{SERVER}\n" for name in ("one", "two")}
    documents = read_documents({**scripts, "env.sh": SETTINGS})
    found = [one for one in lint(documents, "v0.23.0") if one.rule_id == "ENV001"]
    assert [(one.place.path, one.place.line) for one in found] == [("env.sh", 3)]


def test_a_value_put_together_from_two_files_is_placed_where_it_is_used() -> None:
    documents = read_documents(
        {
            "env.sh": "export LIST='[4,8]'\n" + "#\n" * 50 + "export MODE=FULL_DECODE\n",
            "start.sh": "source env.sh\nvllm serve Qwen/Qwen3-32B --compilation-config "
            '"{\\"cudagraph_mode\\": \\"$MODE\\", \\"cudagraph_capture_sizes\\": $LIST}"\n',
        }
    )
    (found,) = [one for one in lint(documents, "v0.23.0") if one.rule_id == "GRA017"]
    assert found.place.path in ("env.sh", "start.sh")
    texts = {document.path: document.text for document in documents}
    assert "MODE" in texts[found.place.path].split("\n")[found.place.line - 1]


def test_a_file_beside_is_read_and_checked() -> None:
    asked = []

    def load(origin: str, path: str) -> str | None:
        asked.append((origin, path))
        return SETTINGS if path == "deploy/env.sh" else None

    documents = read_documents({"deploy/start.sh": f"source env.sh\nsource gone.sh\n{SERVER}\n"}, load)
    assert [document.path for document in documents] == ["deploy/start.sh", "deploy/env.sh"]
    assert asked == [("deploy/start.sh", "deploy/env.sh"), ("deploy/start.sh", "deploy/gone.sh")]
    assert [one.place.path for one in lint(documents, "v0.23.0") if one.rule_id == "ENV001"] == [
        "deploy/env.sh"
    ]


IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0"
VARIABLES = "# settings\nHCCL_BUFFSIZE=1024\n\nVLLM_USE_V1=1\nOMP_NUM_THREADS\nHCCL_OP_EXPANSION_MODE='AIV'\n"


def test_docker_reads_a_file_of_variables_and_keeps_quotes() -> None:
    launch = server(
        start_sh=f"docker run --env-file npu.env -e HCCL_BUFFSIZE=512 {IMAGE} vllm serve Qwen/Qwen3-32B\n",
        npu_env=VARIABLES,
    )
    values = {name: one.value.text for name, one in launch.env.items()}
    assert values == {"HCCL_BUFFSIZE": "512", "VLLM_USE_V1": "1", "HCCL_OP_EXPANSION_MODE": "'AIV'"}


@pytest.mark.parametrize("entry", ["env_file: npu.env", "env_file: [npu.env]", "env_file: [{path: npu.env}]"])
def test_compose_reads_a_file_of_variables(entry: str) -> None:
    texts = {
        "compose.yaml": f"services:\n  a:\n    image: {IMAGE}\n    {entry}\n"
        "    environment: {HCCL_BUFFSIZE: 300}\n    command: vllm serve Qwen/Qwen3-32B\n",
        "npu.env": VARIABLES,
    }
    documents = read_documents(texts)
    (launch,) = documents[0].launches
    assert launch.env["HCCL_OP_EXPANSION_MODE"].value.text == "AIV"
    assert launch.env["HCCL_BUFFSIZE"].value.text == "300"
    found = [(one.place.path, one.place.line) for one in lint(documents) if one.rule_id == "ENV003"]
    assert found == [("npu.env", 4)]


MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: npu}\ndata:\n  TASK_QUEUE_ENABLE: '2'\n  other: x\n"
POD = (
    f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: {IMAGE}\n"
    "    command: [vllm, serve, Qwen/Qwen3-32B]\n"
)
FROM_ALL = "    envFrom: [{configMapRef: {name: npu}}]\n"
FROM_KEY = "    env: [{name: TASK_QUEUE_ENABLE, valueFrom: {configMapKeyRef: {name: npu, key: TASK_QUEUE_ENABLE}}}]\n"


@pytest.mark.parametrize("reference", [FROM_ALL, FROM_KEY])
@pytest.mark.parametrize("is_one_file", [True, False])
def test_a_pod_gets_what_its_config_map_holds(reference: str, is_one_file: bool) -> None:
    texts = {"pod.yaml": POD + reference, "map.yaml": MAP}
    if is_one_file:
        texts = {"all.yaml": f"{POD}{reference}---\n{MAP}"}
    documents = read_documents(texts)
    (launch,) = documents[0].launches
    assert launch.env["TASK_QUEUE_ENABLE"].value.text == "2"
    (found,) = [one for one in lint(documents) if one.rule_id == "ENV001"]
    text = {document.path: document.text for document in documents}[found.place.path]
    assert "TASK_QUEUE_ENABLE" in text or "'2'" in text


def test_a_script_in_a_config_map_is_read() -> None:
    data = f"  start.sh: |\n    #!/bin/bash\n    export TASK_QUEUE_ENABLE=2\n    {SERVER} --swap-space 4\n"
    documents = read_documents({"map.yaml": MAP + data})
    found = {(one.rule_id, one.place.line) for one in lint(documents, "v0.23.0")}
    assert {("ENV001", 9), ("CLI009", 10)} <= found
