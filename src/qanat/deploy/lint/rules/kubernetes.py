"""Kubernetes manifests against what vLLM makes of the variables that Kubernetes sets."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.lint.files import FileSet
from qanat.deploy.lint.registry import Hit, on_files
from qanat.deploy.sources.values import Value


@on_files("HOST017")
def service_names(files: FileSet) -> Iterator[Hit]:
    """A service whose name makes Kubernetes set VLLM_PORT in the pods of a server."""
    has_links = any(
        server.launch.container is not None and _has_service_links(server.launch.container.settings)
        for view in files.documents
        if view.document.kind == "kubernetes"
        for server in view.servers()
    )
    for view in files.documents:
        for service in view.document.services:
            if has_links and service.text.lower() == "vllm":
                yield Hit(
                    "HOST017", service.place, "the name makes Kubernetes set VLLM_PORT=tcp://... in every pod"
                )


def _has_service_links(settings: dict[str, Value]) -> bool:
    links = settings.get("enableServiceLinks")
    return links is None or links.text.lower() != "false"
