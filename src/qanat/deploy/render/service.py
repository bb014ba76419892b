"""Where a deployment answers: addresses and ports as words of bash, with the variables of env.sh in them."""

from __future__ import annotations

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.plan.places import entry_node, server_port, service_port
from qanat.deploy.render.addresses import in_url
from qanat.deploy.render.engine import stated_host
from qanat.deploy.render.names import SERVER_READY_PATH
from qanat.deploy.render.proxy import is_router, proxy_ready_path
from qanat.deploy.rendered.env_values import address_variable


def service_url(plan: Plan) -> str:
    """Where clients send requests, for double quotes of bash; fails there where the address is not set."""
    return f"http://{_address(plan, entry_node(plan))}:{service_port(plan)}"


def ready_urls(plan: Plan) -> list[str]:
    """What answers 200 once everything is up: every engine, and the proxy last."""
    found = _engine_urls(plan, SERVER_READY_PATH)
    if plan.proxy is not None:
        found.append(service_url(plan) + proxy_ready_path(plan.proxy))
    return found


def models_urls(plan: Plan) -> list[str]:
    """Where to ask for the names of models: the example proxies answer no such question."""
    if plan.proxy is None or is_router(plan.proxy):
        return [f"{service_url(plan)}/v1/models"]
    return _engine_urls(plan, "/v1/models")


def _engine_urls(plan: Plan, path: str) -> list[str]:
    ports = [(node, server_port(plan, node)) for node in plan.nodes]
    return [f"http://{_address(plan, node)}:{port}{path}" for node, port in ports if port is not None]


def _address(plan: Plan, node: Node) -> str:
    stated = stated_host(plan, node) if server_port(plan, node) is not None and plan.proxy is None else None
    if stated is not None:
        return f"[{stated}]" if ":" in stated else stated
    return in_url(plan, f"${{{address_variable(node)}:?is not set in env.sh}}")
