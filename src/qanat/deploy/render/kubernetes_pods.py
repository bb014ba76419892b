"""Pods of a deployment: what container.sh starts on a host, for Kubernetes."""

from __future__ import annotations

from typing import Any

from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.releases import KnownPath
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import has_model_path, server_port
from qanat.deploy.render.env_file import draft_path, shared_memory_gib, threshold
from qanat.deploy.render.names import MOUNTED_AT, PROXY_READY_PATH, SERVER_READY_PATH
from qanat.deploy.render.runnable import CACHE_AT, chip_of, host_paths
from qanat.deploy.rendered.env_values import variable_part

STARTUP_PERIOD_S = 10
PROXY_STARTUP_S = 60
PROXY_CPUS, PROXY_MEMORY = "2", "4Gi"
NODE_TYPE = "accelerator-type"
"""The label that MindCluster gives nodes."""
CHIP_LABEL = "qanat.io/chip"
"""The label for clusters without it."""
POD_IP = {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
NOT_PRIVILEGED = {"privileged": False, "allowPrivilegeEscalation": False}
WAIT = """\
import sys, time, urllib.request as request
opener = request.build_opener(request.ProxyHandler({}))
for url in sys.argv[1:]:
    while True:
        try:
            opener.open(url, timeout=5)
            break
        except OSError as error:
            print(f"waiting for {url}: {error}", flush=True)
            time.sleep(5)
"""
"""Ends once every address has answered without an error."""


def engine_pod(plan: Plan, group: list[Node], node: Node, scripts: str) -> dict[str, Any]:
    """The pod spec of a node's engine.

    Args:
        plan: the deployment.
        group: the nodes of the instance, by rank.
        node: one of them; all ranks behind the first are started from the spec of one of them.
        scripts: name of the ConfigMap with the scripts.
    """
    chip = chip_of(plan)
    port = server_port(plan, node)
    npus = {chip.kubernetes_resource: len(node.npus)}
    mounts, volumes = _engine_volumes(plan, node, scripts)
    container: dict[str, Any] = {
        "name": "engine",
        "image": plan.image,
        "command": ["/bin/bash", f"{MOUNTED_AT}/start.sh"],
        "args": [f"{one.name}:{variable_part(one)}" for one in group],
        "env": [
            {"name": "POD_IP", **POD_IP},
            {"name": "LEADER_TIMEOUT_S", "value": str(threshold("ready-timeout"))},
        ],
    }
    if port is not None:
        container["ports"] = [{"name": "http", "containerPort": port, "protocol": "TCP"}]
        container |= probes(SERVER_READY_PATH, port, threshold("ready-timeout"))
    container["resources"] = {"requests": npus, "limits": npus}
    container["securityContext"] = NOT_PRIVILEGED
    container["volumeMounts"] = mounts
    spec = {**common(threshold("stop-timeout")), "hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if chip.kubernetes_node_types:
        spec["affinity"] = _affinity(chip)
    if chip.needs_host_pids:
        spec["hostPID"] = True
    return {**spec, "containers": [container], "volumes": volumes}


def _affinity(chip: Chip) -> dict[str, Any]:
    """Nodes with this chip: others offer the same resource, and its image does not run there."""
    labels = {NODE_TYPE: list(chip.kubernetes_node_types), CHIP_LABEL: [chip.name]}
    terms = [
        {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}
        for key, values in labels.items()
    ]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def proxy_pod(
    plan: Plan, port: int, env: list[dict[str, Any]], urls: list[str], scripts: str
) -> dict[str, Any]:
    """The pod spec of the proxy, which starts once all engines have answered.

    Args:
        plan: the deployment.
        port: the proxy listens on.
        env: addresses that proxy/serve.sh reads.
        urls: what answers once the engines are ready.
        scripts: name of the ConfigMap with the scripts.
    """
    waiting = {
        "name": "wait-for-engines",
        "image": plan.image,
        "command": ["python3", "-c", WAIT, *urls],
        "securityContext": NOT_PRIVILEGED,
    }
    memory = {"memory": PROXY_MEMORY}
    container = {
        "name": "proxy",
        "image": plan.image,
        "command": ["/bin/bash", f"{MOUNTED_AT}/proxy/serve.sh"],
        "env": env,
        "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
        **probes(PROXY_READY_PATH, port, PROXY_STARTUP_S),
        "resources": {"requests": {"cpu": PROXY_CPUS, **memory}, "limits": memory},
        "securityContext": NOT_PRIVILEGED,
        "volumeMounts": [{"name": "scripts", "mountPath": MOUNTED_AT, "readOnly": True}],
    }
    volume = {
        "name": "scripts",
        "configMap": {"name": scripts, "items": [_item("env.sh"), _item("proxy/serve.sh")]},
    }
    shared = common(threshold("stop-timeout"))
    return {**shared, "initContainers": [waiting], "containers": [container], "volumes": [volume]}


def key_of(path: str) -> str:
    """The key of a script in the ConfigMap, whose keys have no slashes."""
    return path.replace("/", ".")


def _item(path: str) -> dict[str, str]:
    return {"key": key_of(path), "path": path}


def common(grace_s: int) -> dict[str, Any]:
    """What every pod has; variables that Kubernetes makes of services would be read as settings of vLLM.

    Args:
        grace_s: from the request to end until the pod is killed.
    """
    return {"enableServiceLinks": False, "terminationGracePeriodSeconds": grace_s}


def probes(path: str, port: int, start_s: int, ready_path: str = "") -> dict[str, Any]:
    """Probes over HTTP: nothing is asked of the other two until the first start has been waited for.

    Args:
        path: answers without an error while the program lives.
        port: of it.
        start_s: how long the start may take.
        ready_path: answers so while it takes requests; the same path where it is empty.
    """
    live = {"httpGet": {"path": path, "port": port}}
    ready = {"httpGet": {"path": ready_path or path, "port": port}}
    return {
        "startupProbe": {
            **live,
            "periodSeconds": STARTUP_PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": max(1, start_s // STARTUP_PERIOD_S),
        },
        "readinessProbe": {**ready, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**live, "periodSeconds": 30, "timeoutSeconds": 30, "failureThreshold": 5},
    }


def _engine_volumes(
    plan: Plan, node: Node, scripts: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Mounts and volumes: scripts, shared memory, the driver, weights, and what is downloaded and compiled."""
    group = [one for one in plan.nodes if (one.role, one.instance) == (node.role, node.instance)]
    items = [_item("env.sh"), _item("start.sh"), *(_item(f"nodes/{one.name}/serve.sh") for one in group)]
    volumes: list[dict[str, Any]] = [
        {"name": "scripts", "configMap": {"name": scripts, "items": items}},
        {
            "name": "shared-memory",
            "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_memory_gib(plan)}Gi"},
        },
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "scripts", "mountPath": MOUNTED_AT, "readOnly": True},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    required, optional = host_paths(plan, node)
    paths = [path for path in [*required, *optional] if not path.startswith("/dev/")]
    named = {f"host-{number}": path for number, path in enumerate(paths)}
    known = load_knowledge().tables["known_paths"].entries.values()
    folders = {path.name for path in known if isinstance(path, KnownPath) and path.is_folder}
    if has_model_path(plan):
        named["weights"] = plan.model_source
        folders.add(plan.model_source)
    draft = draft_path(plan)
    if draft is not None:
        named["draft-weights"] = draft
        folders.add(draft)
    for name, path in named.items():
        # Without a type, container runtimes make a folder of what is missing.
        kind = "Directory" if path in folders else "File"
        volumes.append({"name": name, "hostPath": {"path": path, "type": kind}})
        mounts.append({"name": name, "mountPath": path, "readOnly": True})
    volumes.append({"name": "cache", "hostPath": {"path": CACHE_AT, "type": "DirectoryOrCreate"}})
    mounts.append({"name": "cache", "mountPath": CACHE_AT})
    return mounts, volumes
