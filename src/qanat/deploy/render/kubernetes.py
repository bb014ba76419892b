"""Kubernetes manifests: a StatefulSet for an engine on one node, a LeaderWorkerSet for one on several.

Pods run the same serve.sh as containers of container.sh do; start.sh finds the addresses that env.sh holds elsewhere.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from qanat.deploy.plan.model import Node, Plan, Proxy
from qanat.deploy.plan.places import server_port
from qanat.deploy.render.env_file import env_settings
from qanat.deploy.render.kubernetes_pods import POD_IP, engine_pod, key_of, proxy_pod
from qanat.deploy.render.kubernetes_router import SETTINGS, router_deployment, router_pod, router_settings
from qanat.deploy.render.model import Files, RenderedFile, RenderOptions
from qanat.deploy.render.names import PROXY_NAME, SERVER_READY_PATH, deployment_name, identity, readable_name
from qanat.deploy.render.proxy import SIDES, backends, is_router, proxy_files
from qanat.deploy.render.serve import serve_script
from qanat.deploy.render.shell import body, comment
from qanat.deploy.render.yaml_text import yaml_text
from qanat.deploy.rendered.env_values import address_variable

MAX_NAME_LENGTH = 30
"""Of a deployment: what is put behind it must leave a StatefulSet's name below 53, as its pods get a label of that
name and a digest, and labels have at most 63 characters."""
ENV_NAMES = ("READY_TIMEOUT_S", "RAY_PORT")
"""Variables of env.sh that pods read from there; the others are paths of hosts, or found by start.sh."""
ENV_HEAD = "# shellcheck shell=bash disable=SC2034\n# Addresses and interfaces are set by start.sh.\n"
ANSWERS = "qanat.io/answers-clients"
SCRIPTS = "qanat.io/scripts"
"""A digest of the scripts that a pod mounts: a changed one makes pods start again, which a ConfigMap does not."""


def files(plan: Plan, options: RenderOptions) -> Files:
    """kubernetes/scripts.yaml, a file for every engine, and one for what clients talk to.

    Nothing where no image is run, or where `qanat router` is the proxy and there is no image with it.

    Args:
        plan: the deployment.
        options: with `install` "source" there are no containers.
    """
    if not is_rendered(plan, options):
        return {}
    scripts = f"{base_name(plan)}-scripts"
    config = _config_map(plan, options, scripts)
    found: dict[str, list[Any]] = {"scripts": [config]}
    for group in groups(plan):
        found[f"{group[0].role}-{group[0].instance}"] = _engine(plan, group, scripts)
    if plan.proxy is not None:
        found[PROXY_NAME] = [_proxy(plan, plan.proxy, scripts, options)]
    for template in [one for documents in found.values() for one in _templates(documents[0])]:
        template["metadata"]["annotations"] = {SCRIPTS: _digest(config["data"], template["spec"])}
    found["service"] = [_service(plan, base_name(plan), {ANSWERS: "yes"}, client_port(plan))]
    about = {name: f"{deployment_name(plan)}: {words}" for name, words in _about(found).items()}
    return {
        f"kubernetes/{name}.yaml": RenderedFile(f"{comment(about[name])}\n{yaml_text(documents)}")
        for name, documents in found.items()
    }


def _templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod templates of an object."""
    spec = document.get("spec", {})
    group = spec.get("leaderWorkerTemplate", {})
    found = [spec.get("template"), group.get("leaderTemplate"), group.get("workerTemplate")]
    return [one for one in found if one is not None]


def _digest(data: dict[str, str], pod: dict[str, Any]) -> str:
    """Of the scripts that a pod mounts."""
    (scripts,) = [one["configMap"] for one in pod["volumes"] if "configMap" in one]
    texts = "".join(data[item["key"]] for item in scripts["items"])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def is_rendered(plan: Plan, options: RenderOptions) -> bool:
    """Whether there are manifests for a plan."""
    has_no_router = plan.proxy is None or not is_router(plan.proxy)
    return options.install == "image" and (has_no_router or bool(options.router_image))


def groups(plan: Plan) -> list[list[Node]]:
    """The nodes of every instance, by rank."""
    instances = dict.fromkeys((node.role, node.instance) for node in plan.nodes)
    return [
        sorted((node for node in plan.nodes if (node.role, node.instance) == key), key=lambda node: node.rank)
        for key in instances
    ]


def base_name(plan: Plan) -> str:
    """What names of objects begin with: fit for a service, and not the one of which Kubernetes makes VLLM_PORT."""
    digest = identity(plan)
    name = re.sub(r"[^a-z0-9]+", "-", readable_name(plan))[: MAX_NAME_LENGTH - len(digest) - 1].strip("-")
    if not re.match(r"[a-z]", name) or name == "vllm":
        name = f"qanat-{name}".strip("-")
    return f"{name}-{digest}"


def _about(found: dict[str, list[Any]]) -> dict[str, str]:
    words = {
        "scripts": "what pods run. Written by qanat deploy render; change the plan and render again.",
        "service": "what clients talk to.",
        PROXY_NAME: "the proxy in front of prefill and decode.",
    }
    return {name: words.get(name, f"the engine {name}.") for name in found}


def client_port(plan: Plan) -> int:
    """The port of the service that clients talk to."""
    port = plan.port if plan.proxy is None else plan.proxy.port
    return port if plan.proxy is not None else server_port(plan, plan.nodes[0]) or port


def _labels(plan: Plan, component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": base_name(plan), "app.kubernetes.io/component": component}


def _metadata(plan: Plan, name: str, component: str) -> dict[str, Any]:
    return {"name": name, "labels": _labels(plan, component)}


def _config_map(plan: Plan, options: RenderOptions, name: str) -> dict[str, Any]:
    settings = [one for one in env_settings(plan, options) if one.name in ENV_NAMES]
    data = {"env.sh": "\n".join([ENV_HEAD, *(one.text for one in settings)])}
    data["start.sh"] = body("kubernetes_start.sh")
    for node in plan.nodes:
        data[key_of(f"nodes/{node.name}/serve.sh")] = serve_script(plan, node, options).text
    if plan.proxy is not None and is_router(plan.proxy):
        data[SETTINGS] = router_settings(plan.proxy, {role: _reached(plan, role) for role in SIDES})
    elif plan.proxy is not None:
        in_pod = with_proxy_apart(plan, plan.proxy)
        data[key_of("proxy/serve.sh")] = proxy_files(in_pod, options)["proxy/serve.sh"].text
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(plan, name, "scripts"),
        "data": data,
    }


def with_proxy_apart(plan: Plan, proxy: Proxy) -> Plan:
    """The plan with the proxy on a node of its own, which in Kubernetes is its pod."""
    beside = plan.nodes[0]
    rank = 1 + max(node.rank for node in plan.nodes)
    own = msgspec.structs.replace(beside, name=PROXY_NAME, rank=rank, address="", interface="", npus=())
    return msgspec.structs.replace(
        plan, nodes=(*plan.nodes, own), proxy=msgspec.structs.replace(proxy, node=PROXY_NAME)
    )


def _engine(plan: Plan, group: list[Node], scripts: str) -> list[Any]:
    """The objects of one instance: its pods, and a service by whose name the proxy finds it."""
    first = group[0]
    component = f"{first.role}-{first.instance}"
    name = f"{base_name(plan)}-{component}"
    labels = _labels(plan, component)
    if plan.proxy is None:
        labels = {**labels, ANSWERS: "yes"}
    leader = {"metadata": {"labels": labels}, "spec": engine_pod(plan, group, first, scripts)}
    service = _service(
        plan, _host_name(plan, first), _labels(plan, component), server_port(plan, first) or plan.port
    )
    service["spec"] = {"clusterIP": "None", **service["spec"]}
    if len(group) == 1:
        spec: dict[str, Any] = {
            "replicas": 1,
            "serviceName": _host_name(plan, first),
            "selector": {"matchLabels": _labels(plan, component)},
            "template": leader,
        }
        metadata = _metadata(plan, name, component)
        return [{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}, service]
    worker_labels = _labels(plan, f"{component}-worker")
    worker = {"metadata": {"labels": worker_labels}, "spec": engine_pod(plan, group, group[1], scripts)}
    template = {
        "size": len(group),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": leader,
        "workerTemplate": worker,
    }
    # The leader is ready only when its workers are there: they must not wait for it.
    spec = {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template}
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": _metadata(plan, name, component),
        "spec": spec,
    }
    return [lws, service]


def _service(plan: Plan, name: str, labels: dict[str, str], port: int) -> dict[str, Any]:
    selector = {"app.kubernetes.io/name": base_name(plan), **labels}
    ports = [{"name": "http", "port": port, "targetPort": "http", "protocol": "TCP"}]
    metadata = _metadata(plan, name, "service")
    spec = {"selector": selector, "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _host_name(plan: Plan, node: Node) -> str:
    """The name in the cluster's DNS of the engine whose first node this is."""
    return f"{base_name(plan)}-{node.role}-{node.instance}-http"


def _reached(plan: Plan, role: str) -> list[tuple[str, int]]:
    """Host names and ports of the engines of a role."""
    return [(_host_name(plan, node), port) for node, port in backends(plan, role)]


def _proxy(plan: Plan, proxy: Proxy, scripts: str, options: RenderOptions) -> dict[str, Any]:
    metadata = _metadata(plan, f"{base_name(plan)}-{PROXY_NAME}", PROXY_NAME)
    labels = {**_labels(plan, PROXY_NAME), ANSWERS: "yes"}
    if is_router(proxy):
        return router_deployment(metadata, labels, router_pod(proxy, options.router_image, scripts))
    return _example_proxy(plan, proxy, scripts, metadata, labels)


def _example_proxy(
    plan: Plan, proxy: Proxy, scripts: str, metadata: dict[str, Any], labels: dict[str, str]
) -> dict[str, Any]:
    """The example proxy; a second one would not know what the first has sent to the engines."""
    in_pod = with_proxy_apart(plan, proxy)
    env: list[dict[str, Any]] = [{"name": address_variable(in_pod.nodes[-1]), **POD_IP}]
    urls = []
    for role in SIDES:
        for node, port in backends(plan, role):
            host = _host_name(plan, node)
            env.append({"name": address_variable(node), "value": host})
            urls.append(f"http://{host}:{port}{SERVER_READY_PATH}")
    spec = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": _labels(plan, PROXY_NAME)},
        "template": {
            "metadata": {"labels": labels},
            "spec": proxy_pod(plan, proxy.port, env, urls, scripts),
        },
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
