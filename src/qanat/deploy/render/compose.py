"""Compose files: one for every node, and one for the proxy, with what container.sh and proxy.sh start.

Inside of the container the same serve.sh runs as there. Addresses and paths are variables that Compose reads from
the environment, where env.sh puts them; a dollar sign of any other text is doubled, as Compose wants it.
"""

from __future__ import annotations

from typing import Any

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import has_model_path, proxy_node
from qanat.deploy.render.addresses import in_url
from qanat.deploy.render.env_file import draft_path, threshold
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions
from qanat.deploy.render.names import (
    LABEL_DEPLOYMENT,
    LABEL_FOLDER,
    LABEL_NODE,
    MOUNTED_AT,
    PROXY_NAME,
    container_name,
    deployment_name,
)
from qanat.deploy.render.proxy import is_router, proxy_ready_path
from qanat.deploy.render.runnable import CACHE_AT, chip_of, engine_runnable, host_paths
from qanat.deploy.render.shell import comment
from qanat.deploy.render.yaml_text import yaml_text
from qanat.deploy.rendered.env_values import CACHE_DIR, DRAFT_PATH, MODEL_PATH, address_variable

PROBE = """import sys, urllib.request as request
request.build_opener(request.ProxyHandler({})).open(sys.argv[1], timeout=5)"""
"""Asks past web proxies, which do not reach the nodes; ends with 0 for an answer that is no error."""
PROXY_READY_TIMEOUT_S = 60


def files(plan: Plan, options: RenderOptions) -> Files:
    """compose/<node>.yaml for every node, and compose/proxy.yaml; nothing where no image is run.

    Args:
        plan: the deployment.
        options: with `install` "source" there are no containers.
    """
    if options.install == "source":
        return {}
    found = {node.name: _engine(plan, node) for node in plan.nodes}
    if plan.proxy is not None and not is_router(plan.proxy):
        found[PROXY_NAME] = _proxy(plan)
    return {f"compose/{name}.yaml": _file(plan, name, service) for name, service in found.items()}


def literal(text: str) -> str:
    """A text that Compose leaves as it is."""
    return text.replace("$", "$$")


def _file(plan: Plan, name: str, service: dict[str, Any]) -> RenderedFile:
    place = plan.proxy.node if plan.proxy is not None and name == PROXY_NAME else name
    about = (
        f"Runs {name} of {deployment_name(plan)} on node {place}, in place of its start script.\n"
        "Mounts whose path this host does not have stop the start; take such lines out."
    )
    project = "".join(one if one.isalnum() and one.isascii() else "-" for one in container_name(plan, name))
    content = {"name": project, "services": {name: service}}
    text = yaml_text([content])
    return RenderedFile(f"{comment(about)}\n{text}")


def _common(plan: Plan, name: str, serve: str) -> dict[str, Any]:
    """What every container has."""
    folder = "${DEPLOYMENT_DIR:?is not set: export it as the folder with env.sh}"
    labels = {LABEL_DEPLOYMENT: deployment_name(plan), LABEL_NODE: name, LABEL_FOLDER: folder}
    return {
        "image": literal(plan.image),
        "container_name": container_name(plan, name),
        "labels": labels,
        "network_mode": "host",
        "init": True,
        "entrypoint": ["/bin/bash"],
        "command": [f"{MOUNTED_AT}/{serve}"],
        "stop_grace_period": f"{threshold('stop-timeout')}s",
    }


def _engine(plan: Plan, node: Node) -> dict[str, Any]:
    required, optional = host_paths(plan, node)
    paths = [path for path in required if not path.startswith("/dev/")] + optional
    mounts = [_mount("..", MOUNTED_AT), *(_mount(literal(path), literal(path)) for path in paths)]
    if has_model_path(plan):
        mounts.append(_mount(_variable(MODEL_PATH), literal(plan.model_source)))
    draft = draft_path(plan)
    if draft is not None:
        mounts.append(_mount(_variable(DRAFT_PATH), literal(draft)))
    mounts.append(_mount(_variable(CACHE_DIR), CACHE_AT, is_read_only=False))
    service = _common(plan, node.name, f"nodes/{node.name}/serve.sh")
    # A rank that comes back alone does not find its way into a group that runs: all of it has to start again.
    is_alone = plan.role(node.role).nodes_per_instance == 1
    service["restart"] = "unless-stopped" if is_alone else "no"
    if chip_of(plan).needs_host_pids:
        service["pid"] = "host"
    service["shm_size"] = _variable("SHM_SIZE")
    service["devices"] = [path for path in required if path.startswith("/dev/")]
    service["volumes"] = mounts
    url = engine_runnable(plan, node).ready_url.strip("\"'")
    if url:
        service["healthcheck"] = _health(url, threshold("ready-timeout"))
    return service


def _proxy(plan: Plan) -> dict[str, Any]:
    assert plan.proxy is not None
    service = _common(plan, PROXY_NAME, "proxy/serve.sh")
    service["restart"] = "unless-stopped"
    service["volumes"] = [_mount("..", MOUNTED_AT)]
    address = in_url(plan, _variable(address_variable(proxy_node(plan, plan.proxy))))
    url = f"http://{address}:{plan.proxy.port}{proxy_ready_path(plan.proxy)}"
    service["healthcheck"] = _health(url, PROXY_READY_TIMEOUT_S)
    return service


def _variable(name: str) -> str:
    return f"${{{name}:?is not set in env.sh}}"


def _mount(source: str, target: str, is_read_only: bool = True) -> dict[str, Any]:
    """A mount that does not make what is missing: a file of the driver would become a folder."""
    mount: dict[str, Any] = {"type": "bind", "source": source, "target": target}
    if is_read_only:
        mount["read_only"] = True
    return {**mount, "bind": {"create_host_path": False}}


def _health(url: str, start_s: int) -> dict[str, Any]:
    return {
        "test": ["CMD", "python3", "-c", PROBE, url],
        "interval": "30s",
        "timeout": "15s",
        "retries": 4,
        "start_period": f"{start_s}s",
    }
