"""Containers that cannot start an engine, and ports that nobody answers."""

from __future__ import annotations

import pytest

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

RULES = {"HOST018", "HOST019", "HOST020", "HOST021", "HOST022", "HOST023"}
PARTS = {
    "flags": "--shm-size 16g",
    "ports": "-p 8000:8000",
    "svm": "--device /dev/devmm_svm",
    "hdc": "--device /dev/hisi_hdc",
    "driver": "-v /usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64:ro",
    "models": "-v /data:/models",
    "before": "",
}
MANIFEST = """apiVersion: v1
kind: Pod
spec:
  containers:
  - image: quay.io/ascend/vllm-ascend:v0.23.0
    command: [vllm, serve, /models/Qwen3-32B, -tp, "2", --port, "{port}"]
    ports: [{{name: http, containerPort: 8000}}]
    readinessProbe: {{httpGet: {{path: {path}, port: {probe}}}}}
    resources: {{limits: {{huawei.com/Ascend910: 2}}}}
    volumeMounts: [{{name: models, mountPath: /models}}, {{name: shm, mountPath: {shm}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: qwen}}
spec: {{ports: [{{port: 80, targetPort: {target}}}]}}
"""
COMPOSE = """x-npu: &npu
  devices: [/dev/davinci0, /dev/davinci1, /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc]
  volumes: {volumes}
services:
  qwen:
    <<: *npu
    image: quay.io/ascend/vllm-ascend:v0.23.0
    shm_size: 16g
    ports: {ports}
    command: vllm serve /data/Qwen3-32B -tp 2
"""
VOLUMES = '["/data:/data", "/usr/local/Ascend/driver:/usr/local/Ascend/driver"]'


def script(**changed: str) -> str:
    parts = {**PARTS, **changed}
    options = " ".join(parts[name] for name in ("flags", "ports", "svm", "hdc", "driver", "models"))
    return (
        f"#!/bin/bash\ndocker run -itd --name q --device /dev/davinci0 --device /dev/davinci1 {options} "
        "--device=/dev/davinci_manager quay.io/ascend/vllm-ascend:v0.23.0 bash\n"
        f"{parts['before']}\n"
        'docker exec q bash -c "vllm serve /models/Qwen3-32B -tp 2 --port 8000"\n'
    )


def found(text: str, name: str = "start.sh") -> list[tuple[str, str]]:
    findings = lint([read_document(name, text)])
    return [(one.rule_id, one.message) for one in findings if one.rule_id in RULES]


def test_a_container_that_has_everything_is_right() -> None:
    assert found(script()) == []


@pytest.mark.parametrize(
    ("changed", "rule", "named"),
    [
        ({"svm": ""}, "HOST018", "/dev/devmm_svm"),
        ({"hdc": ""}, "HOST018", "/dev/hisi_hdc"),
        ({"driver": ""}, "HOST019", "/usr/local/Ascend/driver/lib64"),
        ({"models": "-v /data:/data"}, "HOST020", "/models/Qwen3-32B"),
        ({"ports": "-p 8001:8001"}, "HOST021", "8001:8001"),
        ({"ports": "-p 127.0.0.1:80:8001/tcp"}, "HOST021", "8001"),
        ({"flags": ""}, "HOST022", "2 ranks"),
    ],
)
def test_what_a_container_lacks_is_named(changed: dict[str, str], rule: str, named: str) -> None:
    ((found_rule, message),) = found(script(**changed))
    assert found_rule == rule
    assert named in message


@pytest.mark.parametrize(
    "changed",
    [
        {"flags": "--ipc=host"},
        {"flags": "-v /dev/shm:/dev/shm"},
        {"flags": "--shm-size=1g --net=host", "ports": "-p 8001:8001"},
        {"ports": "-p 9000-9010:8000-8010"},
        {"ports": "-p $PORT:$PORT"},
        {"flags": "--privileged --shm-size 1g", "svm": "", "hdc": "", "driver": ""},
        {"flags": "--runtime=ascend --shm-size 1g", "svm": "", "driver": ""},
        {"models": "-v $MODELS"},
        {"models": '"${mounts[@]}"', "driver": ""},
        {"models": "-v /data:$TARGET"},
        {"models": "", "before": "docker exec q modelscope download --local_dir /models/Qwen3-32B x/y"},
        {"driver": "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver"},
    ],
)
def test_what_is_enough_or_not_known_is_left_alone(changed: dict[str, str]) -> None:
    assert found(script(**changed)) == []


def test_an_image_without_a_known_chip_is_left_alone() -> None:
    text = script(svm="", driver="", models="", flags="").replace(
        "quay.io/ascend/vllm-ascend:v0.23.0", "my/engine:1"
    )
    assert found(text) == []


def test_compose_is_read_with_what_it_merges() -> None:
    assert found(COMPOSE.format(ports='["8000:8000"]', volumes=VOLUMES), "compose.yaml") == []
    text = COMPOSE.format(ports="[{target: 8001, published: 80}]", volumes="[models:/models]")
    assert [rule for rule, _ in found(text, "compose.yaml")] == ["HOST019", "HOST021", "HOST020"]


@pytest.mark.parametrize(
    ("changed", "rules"),
    [
        ({}, []),
        ({"probe": "http"}, []),
        ({"path": "/healthz"}, ["HOST023"]),
        ({"probe": "9000"}, ["HOST023"]),
        ({"probe": "http", "port": "9000", "target": "9000"}, ["HOST023"]),
        ({"target": "9000"}, ["HOST021"]),
        ({"target": "http"}, []),
        ({"shm": "/other"}, ["HOST022"]),
    ],
)
def test_ops_004_manifests_ask_what_the_server_answers(changed: dict[str, str], rules: list[str]) -> None:
    parts = {
        "port": "8000",
        "path": "/health",
        "probe": "8000",
        "shm": "/dev/shm",
        "target": "8000",
        **changed,
    }
    assert [rule for rule, _ in found(MANIFEST.format(**parts), "pod.yaml")] == rules


@pytest.mark.parametrize("path", load_knowledge().tables["endpoints"].entries)
def test_every_endpoint_may_be_probed(path: str) -> None:
    parts = {"port": "8000", "path": path, "probe": "8000", "shm": "/dev/shm", "target": "8000"}
    assert found(MANIFEST.format(**parts), "pod.yaml") == []
