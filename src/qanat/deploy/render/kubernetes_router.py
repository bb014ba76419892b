"""`qanat router` on Kubernetes: its settings in the ConfigMap, and its pod."""

from __future__ import annotations

from typing import Any

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Proxy
from qanat.deploy.render.kubernetes_pods import (
    NOT_PRIVILEGED,
    POD_IP,
    PROXY_CPUS,
    PROXY_MEMORY,
    PROXY_STARTUP_S,
    common,
    probes,
)
from qanat.deploy.render.names import MOUNTED_AT
from qanat.deploy.render.proxy import ROUTER, SIDES
from qanat.deploy.render.yaml_text import yaml_text

SETTINGS = "router.yaml"
"""The key in the ConfigMap, and the file in the pod."""
LIVE_PATH, READY_PATH = "/live", "/ready"
UNLIST_S = 5
"""Before SIGTERM: until then the cluster's nodes have heard that the pod takes nothing new."""
DRAIN_S = 120
"""After it: streams that run may finish."""
MARGIN_S = 5


def router_settings(proxy: Proxy, backends: dict[str, list[tuple[str, int]]]) -> str:
    """The text of router.yaml.

    Args:
        proxy: of the plan.
        backends: host names and ports by role.
    """
    settings: dict[str, Any] = {"port": proxy.port, "drain-timeout-s": DRAIN_S}
    settings["connector"] = load_knowledge().connectors.entries[proxy.connector].direction
    for role, side in SIDES.items():
        settings[f"{side}-hosts"] = [host for host, _ in backends[role]]
        settings[f"{side}-ports"] = [port for _, port in backends[role]]
    return yaml_text([settings])


def router_pod(proxy: Proxy, image: str, scripts: str) -> dict[str, Any]:
    """The pod spec. It waits for no engine: who asks too early gets 503, and the pod is not ready until then.

    Args:
        proxy: of the plan.
        image: with Qanat.
        scripts: name of the ConfigMap with the settings.
    """
    memory = {"memory": PROXY_MEMORY}
    container = {
        "name": "router",
        "image": image,
        "command": [*ROUTER.split(), "--config", f"{MOUNTED_AT}/{SETTINGS}", "--host", "$(POD_IP)"],
        "env": [{"name": "POD_IP", **POD_IP}],
        "ports": [{"name": "http", "containerPort": proxy.port, "protocol": "TCP"}],
        **probes(LIVE_PATH, proxy.port, PROXY_STARTUP_S, ready_path=READY_PATH),
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(UNLIST_S)]}}},
        "resources": {"requests": {"cpu": PROXY_CPUS, **memory}, "limits": memory},
        "securityContext": NOT_PRIVILEGED,
        "volumeMounts": [{"name": "scripts", "mountPath": MOUNTED_AT, "readOnly": True}],
    }
    items = [{"key": SETTINGS, "path": SETTINGS}]
    volume = {"name": "scripts", "configMap": {"name": scripts, "items": items}}
    return {**common(UNLIST_S + DRAIN_S + MARGIN_S), "containers": [container], "volumes": [volume]}


def router_deployment(
    metadata: dict[str, Any], labels: dict[str, str], pod: dict[str, Any]
) -> dict[str, Any]:
    """The Deployment: a new pod is ready before the old one is told to go, as routers need not know of each other.

    Args:
        metadata: of the Deployment, whose labels choose its pods.
        labels: of its pods.
        pod: spec of them.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": metadata["labels"]},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
