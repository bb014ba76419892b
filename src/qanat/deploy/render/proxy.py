"""proxy.sh: what stands in front of prefill and decode."""

from __future__ import annotations

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Node, Plan, Proxy
from qanat.deploy.plan.places import proxy_node, server_port
from qanat.deploy.render.addresses import family, in_url
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions, Variable, Word
from qanat.deploy.render.names import MOUNTED_AT, PROXY_NAME, PROXY_READY_PATH, SERVER_READY_PATH
from qanat.deploy.render.runnable import HostFiles, Runnable, other_variables
from qanat.deploy.render.serve import ACTIVATE, WEB_PROXIES, known_paths
from qanat.deploy.render.shell import (
    array,
    assignments,
    body,
    command,
    quote,
    script,
    source_environment,
    word,
)
from qanat.deploy.render.start import container_files, process_files
from qanat.deploy.rendered.env_values import INSTALL_DIR, address_variable

ROUTER = "qanat router"
FOLDER = "proxy"
START = "proxy.sh"
SIDES = {"prefill": "prefiller", "decode": "decoder"}
"""Names of roles in a plan, and of their flags."""


def is_router(proxy: Proxy) -> bool:
    """Whether the proxy is Qanat's own, not one of vllm-ascend's examples."""
    return proxy.program == ROUTER


def backends(plan: Plan, role: str) -> list[tuple[Node, int]]:
    """The nodes of a role that answer requests, with their ports."""
    found = []
    for node in plan.nodes:
        port = server_port(plan, node) if node.role == role else None
        if port is not None:
            found.append((node, port))
    return found


def proxy_ready_path(proxy: Proxy) -> str:
    """The path that answers once the proxy runs."""
    return SERVER_READY_PATH if is_router(proxy) else PROXY_READY_PATH


def proxy_files(plan: Plan, options: RenderOptions) -> Files:
    """The scripts that run, start and stop the proxy; nothing for a plan without one."""
    proxy = plan.proxy
    if proxy is None:
        return {}
    node = proxy_node(plan, proxy)
    host = in_url(plan, f"${{{address_variable(node)}:-}}")
    serve = f"{FOLDER}/serve.sh"
    runnable = Runnable(
        name=PROXY_NAME,
        folder=FOLDER,
        depth=1,
        what=f"the proxy, on node {node.name}",
        needed=tuple(_needed(plan, node)),
        ready_url=f'"http://{host}:{proxy.port}{proxy_ready_path(proxy)}"',
        family=family(plan),
        settings_files=(serve,),
        other_variables=other_variables(plan, _needed(plan, node)),
    )
    files = {serve: _serve_script(plan, proxy, node, options)}
    if options.install == "source" or is_router(proxy):
        start = ["bash", f'"$DEPLOYMENT_DIR"/{quote(serve)}']
        return {**files, **process_files(runnable, start, START)}
    return {
        **files,
        **container_files(plan, runnable, [], [quote(f"{MOUNTED_AT}/{serve}")], HostFiles(), START),
    }


def _needed(plan: Plan, node: Node) -> list[str]:
    sides = [one for role in SIDES for one, _ in backends(plan, role)]
    return list(dict.fromkeys(address_variable(one) for one in (node, *sides)))


def _serve_script(plan: Plan, proxy: Proxy, node: Node, options: RenderOptions) -> RenderedFile:
    title = (
        f"The proxy, for the connector {proxy.connector}: clients talk to it, it talks to prefill and decode."
    )
    names: list[Word] = list(_needed(plan, node))
    parts = [
        source_environment(1),
        assignments({"node": PROXY_NAME, "family": family(plan)}),
        array("needed_variables", names),
        body("say.sh"),
        body("serve.sh"),
        body("needed.sh"),
        body("family.sh"),
        body("router.sh") if is_router(proxy) else "" if options.install == "image" else ACTIVATE,
        f"unset {' '.join(WEB_PROXIES)}",
        command([f"exec {_program(plan, proxy, options)}", *_arguments(plan, proxy, node)]),
    ]
    if not is_router(proxy):
        title += f"\nImage: {plan.image}"
    return RenderedFile(script(title, parts), is_executable=True)


def _program(plan: Plan, proxy: Proxy, options: RenderOptions) -> str:
    if is_router(proxy):
        return ROUTER
    if options.install == "source":
        return f'python3 "${INSTALL_DIR}"/vllm-ascend/{quote(f"examples/disaggregated_prefill_v1/{proxy.program}")}'
    folder = known_paths("examples", plan)[0]
    return f"python3 {quote(f'{folder}/{proxy.program}')}"


def _arguments(plan: Plan, proxy: Proxy, node: Node) -> list[str]:
    """Hosts and ports of both sides, in one order; decode nodes call back to the address the proxy listens on."""
    found = []
    for role, side in SIDES.items():
        behind = backends(plan, role)
        hosts = " ".join(word(Variable(address_variable(one))) for one, _ in behind)
        found.append(f"--{side}-hosts {hosts}")
        found.append(f"--{side}-ports {' '.join(str(port) for _, port in behind)}")
    if is_router(proxy):
        found.append(f"--connector {load_knowledge().connectors.entries[proxy.connector].direction}")
    return [*found, f"--host {word(Variable(address_variable(node)))}", f"--port {proxy.port}"]
