from __future__ import annotations

from qanat.deploy.lint.engine import lint
from qanat.deploy.sources.documents import read_document

POD = """apiVersion: v1
kind: Pod
spec:
  enableServiceLinks: {links}
  containers:
  - image: quay.io/ascend/vllm-ascend:v0.23.0
    command: [vllm, serve, Qwen/Qwen3-32B]
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata:\n  name: vllm\n"


def found(links: str) -> list[tuple[str, int]]:
    documents = [read_document("pod.yaml", POD.format(links=links)), read_document("service.yaml", SERVICE)]
    return [(one.place.path, one.place.line) for one in lint(documents) if one.rule_id == "HOST017"]


def test_ops_004_a_service_named_vllm_reaches_the_pods_of_a_server() -> None:
    assert found("true") == [("service.yaml", 4)]


def test_ops_004_without_service_links_the_name_is_free() -> None:
    assert found("false") == []
