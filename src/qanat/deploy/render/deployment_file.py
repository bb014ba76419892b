"""deployment.json: the deployment for programs: nodes, scripts, ports, and what answers once they are ready."""

from __future__ import annotations

import json
from typing import Any

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import proxy_node, server_port
from qanat.deploy.render.addresses import in_url
from qanat.deploy.render.engine import stated_host
from qanat.deploy.render.model import RenderedFile, RenderOptions
from qanat.deploy.render.names import PROXY_NAME, SERVER_READY_PATH, container_name, deployment_name
from qanat.deploy.render.proxy import is_router, proxy_ready_path
from qanat.deploy.render.start import start_name
from qanat.deploy.rendered.env_values import ENV_FILE, LOG_DIR, address_variable, interface_variable

DEPLOYMENT_FILE = "deployment.json"
FORMAT = 1
"""It changes when keys change their meaning."""


def deployment_file(plan: Plan, options: RenderOptions) -> RenderedFile:
    """deployment.json. Addresses that the plan does not have are null; `address_variable` of env.sh holds them."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "name": deployment_name(plan),
        "model": plan.model,
        "weights": plan.weights,
        "served_model_name": plan.served_model_name,
        "chip": plan.chip,
        "release": plan.release,
        "image": plan.image if options.install == "image" else None,
        "install": options.install,
        "install_script": "install/source.sh" if options.install == "source" else None,
        "topology": plan.topology.value,
        "environment": ENV_FILE,
        "logs_variable": LOG_DIR,
        "plan": "plan.yaml",
        "service": _service(plan),
        "nodes": [_node(plan, node, options) for node in plan.nodes],
        "proxy": _proxy(plan, options),
    }
    return RenderedFile(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _service(plan: Plan) -> dict[str, Any]:
    """Where clients send their requests."""
    node = plan.nodes[0] if plan.proxy is None else proxy_node(plan, plan.proxy)
    return {"node": node.name, **_place(node, plan.port if plan.proxy is None else plan.proxy.port)}


def _node(plan: Plan, node: Node, options: RenderOptions) -> dict[str, Any]:
    port = server_port(plan, node)
    folder = f"nodes/{node.name}"
    return {
        "name": node.name,
        "role": node.role,
        "instance": node.instance,
        "rank": node.rank,
        "npus": list(node.npus),
        **_place(node, port),
        "interface": node.interface or None,
        "interface_variable": interface_variable(node),
        "ready": _ready(plan, node, port, SERVER_READY_PATH) if port is not None else None,
        "container": container_name(plan, node.name) if options.install == "image" else None,
        "log": f"{node.name}.log",
        "scripts": {
            "host": f"{folder}/host.sh",
            "start": f"{folder}/{start_name(options)}",
            "serve": f"{folder}/serve.sh",
            "stop": f"{folder}/stop.sh",
        },
    }


def _proxy(plan: Plan, options: RenderOptions) -> dict[str, Any] | None:
    if plan.proxy is None:
        return None
    node = proxy_node(plan, plan.proxy)
    has_container = options.install == "image" and not is_router(plan.proxy)
    return {
        "node": node.name,
        "program": plan.proxy.program,
        "connector": plan.proxy.connector,
        **_place(node, plan.proxy.port),
        "ready": _ready(plan, node, plan.proxy.port, proxy_ready_path(plan.proxy)),
        "container": container_name(plan, PROXY_NAME) if has_container else None,
        "log": f"{PROXY_NAME}.log",
        "scripts": {"start": "proxy/proxy.sh", "serve": "proxy/serve.sh", "stop": "proxy/stop.sh"},
    }


def _place(node: Node, port: int | None) -> dict[str, Any]:
    return {"address": node.address or None, "address_variable": address_variable(node), "port": port}


def _ready(plan: Plan, node: Node, port: int, path: str) -> dict[str, Any]:
    stated = stated_host(plan, node)
    host = f"[{stated}]" if stated and ":" in stated else stated or in_url(plan, node.address)
    url = f"http://{host}:{port}{path}" if stated or node.address else None
    return {"path": path, "url": url}
