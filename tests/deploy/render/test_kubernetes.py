"""Kubernetes manifests: complete, consistent, and what pods run does start the engine of their node."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml

from qanat.deploy.plan.model import Node, Plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.kubernetes import base_name
from qanat.deploy.render.kubernetes_pods import WAIT
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.names import identity
from qanat.deploy.render.proxy import ROUTER
from tests.deploy.plan.example_plans import PLANS, disaggregated, single_node, two_nodes
from tests.deploy.render.test_checks import SHELLCHECK

BASE = base_name(disaggregated())
LABEL_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
"""What names of services and volumes may be (RFC 1035)."""
POD_KEYS = {
    "enableServiceLinks": bool,
    "terminationGracePeriodSeconds": int,
    "hostNetwork": bool,
    "hostPID": bool,
    "affinity": dict,
    "dnsPolicy": str,
    "initContainers": list,
    "containers": list,
    "volumes": list,
}
CONTAINER_KEYS = {
    "name": str,
    "image": str,
    "command": list,
    "args": list,
    "env": list,
    "ports": list,
    "startupProbe": dict,
    "readinessProbe": dict,
    "livenessProbe": dict,
    "lifecycle": dict,
    "resources": dict,
    "securityContext": dict,
    "volumeMounts": list,
}


def objects(plan: Plan, options: RenderOptions | None = None) -> list[dict[str, Any]]:
    files = render(plan, options or RenderOptions())
    texts = [file.text for name, file in files.items() if name.startswith("kubernetes/")]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def of_kind(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] == kind]


def templates(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod templates of an object, that of the first rank first."""
    spec = one.get("spec", {})
    if one["kind"] == "LeaderWorkerSet":
        return [spec["leaderWorkerTemplate"][name] for name in ("leaderTemplate", "workerTemplate")]
    return [spec["template"]] if "template" in spec else []


def all_templates(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [template for one in found for template in templates(one)]


PLANS_AND_ROUTER = {**PLANS, "router": lambda: with_router()}


@pytest.mark.parametrize("name", PLANS_AND_ROUTER)
def test_objects_have_what_kubernetes_requires(name: str) -> None:
    found = objects(PLANS_AND_ROUTER[name](), WITH_IMAGE)
    versions = {
        "ConfigMap": "v1",
        "Service": "v1",
        "StatefulSet": "apps/v1",
        "Deployment": "apps/v1",
        "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    }
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(names) == len(set(names))
    for one in found:
        assert one["apiVersion"] == versions[one["kind"]]
        assert LABEL_NAME.fullmatch(one["metadata"]["name"])
        for label in one["metadata"]["labels"].values():
            assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label)
        if one["kind"] in ("StatefulSet", "Deployment"):
            wanted = one["spec"]["selector"]["matchLabels"].items()
            assert wanted <= one["spec"]["template"]["metadata"]["labels"].items()
    for config in of_kind(found, "ConfigMap"):
        assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in config["data"])
        assert sum(len(key) + len(text.encode()) for key, text in config["data"].items()) < 2**20


@pytest.mark.parametrize("name", PLANS_AND_ROUTER)
def test_pods_have_known_keys_and_their_mounts_have_volumes(name: str) -> None:
    found = objects(PLANS_AND_ROUTER[name](), WITH_IMAGE)
    (config,) = of_kind(found, "ConfigMap")
    for template in all_templates(found):
        spec = template["spec"]
        assert {key: type(value) for key, value in spec.items()}.items() <= POD_KEYS.items()
        assert spec["enableServiceLinks"] is False
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert len(volumes) == len(spec["volumes"]) and all(map(LABEL_NAME.fullmatch, volumes))
        mounted = set()
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            assert {key: type(value) for key, value in container.items()}.items() <= CONTAINER_KEYS.items()
            assert container["securityContext"]["privileged"] is False
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert len(paths) == len(set(paths))
            mounted |= {mount["name"] for mount in container.get("volumeMounts", [])}
            for variable in container.get("env", []):
                assert isinstance(variable.get("value", ""), str)
        assert mounted == set(volumes)
        for item in volumes["scripts"]["configMap"]["items"]:
            assert item["key"] in config["data"]
        assert volumes["scripts"]["configMap"]["name"] == config["metadata"]["name"]


@pytest.mark.parametrize("name", PLANS)
def test_engines_have_devices_memory_and_time_to_start(name: str) -> None:
    plan = PLANS[name]()
    found = [*of_kind(objects(plan), "StatefulSet"), *of_kind(objects(plan), "LeaderWorkerSet")]
    for one in found:
        for rank, template in enumerate(templates(one)):
            spec = template["spec"]
            (engine,) = spec["containers"]
            count = len(plan.nodes[0].npus)
            assert engine["resources"]["limits"] == {"huawei.com/Ascend910": count}
            assert engine["resources"]["requests"] == engine["resources"]["limits"]
            assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            assert volumes["shared-memory"]["emptyDir"]["medium"] == "Memory"
            assert re.fullmatch(r"\d+Gi", volumes["shared-memory"]["emptyDir"]["sizeLimit"])
            on_host = [volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume]
            kinds = {one["path"]: one.get("type") for one in on_host}
            assert kinds["/usr/local/Ascend/driver/lib64"] == kinds["/usr/local/dcmi"] == "Directory"
            assert kinds["/etc/hccn.conf"] == kinds["/usr/local/bin/npu-smi"] == "File"
            assert kinds["/root/.cache"] == "DirectoryOrCreate"
            assert {*kinds.values()} == {"File", "Directory", "DirectoryOrCreate"}
            if rank > 0:
                assert "ports" not in engine and "startupProbe" not in engine
                continue
            start = engine["startupProbe"]
            assert start["periodSeconds"] * start["failureThreshold"] >= 1800
            port = engine["ports"][0]["containerPort"]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert engine[probe]["httpGet"] == {"path": "/health", "port": port}


def test_a_group_is_a_leader_and_its_workers() -> None:
    found = objects(two_nodes())
    assert not of_kind(found, "StatefulSet")
    (lws,) = of_kind(found, "LeaderWorkerSet")
    assert lws["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert lws["spec"]["startupPolicy"] == "LeaderCreated"
    assert lws["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    # LeaderWorkerSet makes a service of its own name.
    assert lws["metadata"]["name"] not in {one["metadata"]["name"] for one in of_kind(found, "Service")}


@pytest.mark.parametrize("name", PLANS_AND_ROUTER)
def test_every_service_finds_pods_that_have_its_port(name: str) -> None:
    found = objects(PLANS_AND_ROUTER[name](), WITH_IMAGE)
    for service in of_kind(found, "Service"):
        selected = [
            template
            for template in all_templates(found)
            if service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        ]
        assert selected, service["metadata"]["name"]
        (port,) = service["spec"]["ports"]
        for template in selected:
            (container,) = template["spec"]["containers"]
            named = {one["name"]: one["containerPort"] for one in container["ports"]}
            assert named[port["targetPort"]] == port["port"]


def test_pods_start_again_when_their_scripts_change_and_only_they() -> None:
    def digests(plan: Plan) -> dict[str, str]:
        return {
            one["metadata"]["name"]: template["metadata"]["annotations"]["qanat.io/scripts"]
            for one in objects(plan)
            for template in templates(one)
        }

    plan = disaggregated()
    prefill, decode = plan.roles
    changed = msgspec.structs.replace(decode, flags={**decode.flags, "max-num-seqs": 16})
    before, after = digests(plan), digests(msgspec.structs.replace(plan, roles=(prefill, changed)))
    assert {name for name in before if before[name] != after[name]} == {f"{base_name(plan)}-decode-0"}


def test_clients_reach_the_proxy_and_not_the_engines_behind_it() -> None:
    found = objects(disaggregated())
    (service,) = [one for one in of_kind(found, "Service") if one["metadata"]["name"] == BASE]
    reached = [
        one["metadata"]["name"]
        for one in found
        for template in templates(one)
        if service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ]
    assert reached == [f"{BASE}-proxy"]


def test_the_proxy_knows_every_engine_by_the_name_of_its_service() -> None:
    found = objects(disaggregated())
    (proxy,) = of_kind(found, "Deployment")
    assert proxy["spec"]["replicas"] == 1
    (container,) = proxy["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    services = {one["metadata"]["name"] for one in of_kind(found, "Service")}
    assert {env["ADDRESS_PREFILL_0"], env["ADDRESS_DECODE_0"]} <= services
    assert env["ADDRESS_PROXY"] is None
    (config,) = of_kind(found, "ConfigMap")
    script = config["data"]["proxy.serve.sh"]
    assert '--host "$ADDRESS_PROXY"' in script and '--prefiller-hosts "$ADDRESS_PREFILL_0"' in script
    (waiting,) = proxy["spec"]["template"]["spec"]["initContainers"]
    assert waiting["command"][3:] == [
        f"http://{BASE}-prefill-0-http:30060/health",
        f"http://{BASE}-decode-0-http:30050/health",
    ]


@pytest.mark.parametrize(
    ("served", "base"),
    [
        ("qwen3.5", "qwen3-5"),
        ("vllm", "qanat-vllm"),
        ("3b", "qanat-3b"),
        ("千问", "qanat"),
        ("A_b/C", "a-b-c"),
        ("x" * 300, "x" * 23),
        ("-", "qanat"),
    ],
)
def test_names_are_what_kubernetes_takes(served: str, base: str) -> None:
    plan = msgspec.structs.replace(two_nodes(), served_model_name=served)
    assert base_name(plan) == f"{base}-{identity(plan)}"
    assert len(base_name(plan)) <= 30
    for one in objects(plan):
        assert LABEL_NAME.fullmatch(one["metadata"]["name"]) and one["metadata"]["name"] != "vllm"


@pytest.mark.parametrize(
    ("chip", "resource"), [("310P", "huawei.com/Ascend310P"), ("950DT", "huawei.com/npu")]
)
def test_devices_have_the_name_of_the_device_plugin(chip: str, resource: str) -> None:
    found = objects(msgspec.structs.replace(single_node(), chip=chip))
    (template,) = all_templates(found)
    assert list(template["spec"]["containers"][0]["resources"]["limits"]) == [resource]
    assert template["spec"].get("hostPID", False) is (chip == "950DT")


def test_pods_land_on_nodes_with_the_chip_of_the_image() -> None:
    def chosen(chip: str) -> list[dict[str, Any]]:
        (template,) = all_templates(objects(msgspec.structs.replace(single_node(), chip=chip)))
        affinity = template["spec"].get("affinity", {}).get("nodeAffinity", {})
        rule = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []})
        return [one for term in rule["nodeSelectorTerms"] for one in term["matchExpressions"]]

    types = {chip: {*chosen(chip)[0]["values"]} for chip in ("A2", "A3", "910B2C")}
    assert all(not one & other for a, one in types.items() for b, other in types.items() if a != b)
    assert chosen("A3")[0]["key"] == "accelerator-type" and "module-a3-16" in types["A3"]
    assert chosen("A2")[1] == {"key": "qanat.io/chip", "operator": "In", "values": ["A2"]}
    assert chosen("310P") == []


def with_router(connector: str = "") -> Plan:
    """Prefill and decode behind `qanat router`."""
    plan = disaggregated()
    assert plan.proxy is not None
    connector = connector or plan.proxy.connector
    proxy = msgspec.structs.replace(plan.proxy, program=ROUTER, connector=connector)
    return msgspec.structs.replace(plan, proxy=proxy)


def test_there_are_no_manifests_without_an_image() -> None:
    assert objects(two_nodes(), RenderOptions(install="source")) == []
    assert objects(with_router()) == []


WITH_IMAGE = RenderOptions(router_image="example/qanat:1")


@pytest.mark.parametrize(
    ("connector", "direction"), [("MooncakeConnectorV1", "pull"), ("MooncakeLayerwiseConnector", "push")]
)
def test_the_router_reads_settings_that_name_every_engine_by_its_service(
    connector: str, direction: str
) -> None:
    found = objects(with_router(connector), WITH_IMAGE)
    (router,) = of_kind(found, "Deployment")
    (container,) = router["spec"]["template"]["spec"]["containers"]
    assert container["image"] == WITH_IMAGE.router_image
    (config,) = of_kind(found, "ConfigMap")
    settings = yaml.safe_load(config["data"]["router.yaml"])
    assert settings["connector"] == direction
    services = {one["metadata"]["name"] for one in of_kind(found, "Service")}
    assert {*settings["prefiller-hosts"], *settings["decoder-hosts"]} <= services
    assert (settings["prefiller-ports"], settings["decoder-ports"]) == ([30060], [30050])
    assert settings["port"] == container["ports"][0]["containerPort"]
    assert "proxy.serve.sh" not in config["data"]


def test_the_router_has_time_to_drain_and_probes_of_its_own() -> None:
    found = objects(with_router(), WITH_IMAGE)
    (router,) = of_kind(found, "Deployment")
    spec = router["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (config,) = of_kind(found, "ConfigMap")
    drain_s = yaml.safe_load(config["data"]["router.yaml"])["drain-timeout-s"]
    unlisted_s = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > drain_s + unlisted_s
    paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert paths == {"startupProbe": "/live", "readinessProbe": "/ready", "livenessProbe": "/live"}
    assert router["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert "initContainers" not in spec


def test_the_routers_pod_is_alive_at_once_not_ready_without_engines_and_ends_when_told(
    tmp_path: Path,
) -> None:
    found = objects(with_router("MooncakeConnectorV1"), WITH_IMAGE)
    (router,) = of_kind(found, "Deployment")
    words = mount(tmp_path, found, router["spec"]["template"])
    command = [word.replace("$(POD_IP)", "127.0.0.1") for word in words]
    with subprocess.Popen(
        [sys.executable, "-m", *command, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            started = next(line for line in process.stdout if line.startswith("qanat router: http"))
            url = started.split()[2]
            assert started.endswith("in front of 2 engines\n")
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                assert client.get("/live").status_code == 200
                assert client.get("/ready").status_code == 503
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_instances_of_one_node_each_stand_behind_one_service() -> None:
    plan = single_node()
    role = msgspec.structs.replace(plan.roles[0], num_instances=2)
    second = msgspec.structs.replace(plan.nodes[0], name="server-1", instance=1)
    found = objects(msgspec.structs.replace(plan, roles=(role,), nodes=(*plan.nodes, second)))
    names = [one["metadata"]["name"] for one in of_kind(found, "StatefulSet")]
    assert names == [f"{BASE}-server-0", f"{BASE}-server-1"]
    (service,) = [one for one in of_kind(found, "Service") if one["metadata"]["name"] == BASE]
    for template in all_templates(found):
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()


VLLM = """
import json, os, sys
names = ("HCCL_IF_IP", "HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
print(json.dumps({"arguments": sys.argv[1:], "env": {name: os.environ.get(name) for name in names}}))
"""


def mount(path: Path, found: list[dict[str, Any]], template: dict[str, Any]) -> list[str]:
    """Lays the scripts of a pod out as Kubernetes does, links to a folder of data; returns the pod's command."""
    (config,) = of_kind(found, "ConfigMap")
    data = path / "..2026_11_30"
    for item in template["spec"]["volumes"][0]["configMap"]["items"]:
        target = data / item["path"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(config["data"][item["key"]], encoding="utf-8")
    (path / "..data").symlink_to(data.name)
    for entry in sorted(data.iterdir()):
        (path / entry.name).symlink_to(f"..data/{entry.name}")
    (container,) = template["spec"]["containers"]
    return [
        word.replace("/deployment", str(path)) for word in [*container["command"], *container.get("args", [])]
    ]


def started(path: Path, plan: Plan, rank: int, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs what the pod of a rank runs, with a program in place of vllm that says how it was called."""
    found = objects(plan)
    template = all_templates(found)[rank]
    (path / "bin").mkdir()
    (path / "bin" / "vllm").write_text(f"#!{sys.executable}{VLLM}", encoding="utf-8")
    (path / "bin" / "vllm").chmod(0o755)
    (path / "deployment").mkdir()
    command = mount(path / "deployment", found, template)
    settings = {"PATH": f"{path / 'bin'}:{os.environ['PATH']}", "LEADER_TIMEOUT_S": "0", **env}
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False)


def test_a_pod_starts_the_engine_with_its_own_address_and_interface(tmp_path: Path) -> None:
    done = started(tmp_path, two_nodes(), 0, POD_IP="127.0.0.1", LWS_WORKER_INDEX="0", LWS_LEADER_ADDRESS="x")
    assert done.returncode == 0, done.stderr
    called = yaml.safe_load(done.stdout)
    arguments = called["arguments"]
    assert arguments[:2] == ["serve", "Eco-Tech/Qwen3.5-397B-A17B-w8a8-mtp"]
    assert arguments[arguments.index("--data-parallel-address") + 1] == "127.0.0.1"
    assert "--headless" not in arguments
    assert called["env"] == {
        "HCCL_IF_IP": "127.0.0.1",
        "HCCL_SOCKET_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def test_a_pod_with_an_ipv6_address_starts_the_engine_with_it(tmp_path: Path) -> None:
    if not Path("/proc/net/if_inet6").exists() or " lo\n" not in Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6")
    plan = two_nodes()
    nodes = tuple(msgspec.structs.replace(node, address=f"2001:db8::{node.rank}") for node in plan.nodes)
    plan = msgspec.structs.replace(plan, nodes=nodes)
    done = started(tmp_path, plan, 1, POD_IP="::1", LWS_WORKER_INDEX="1", LWS_LEADER_ADDRESS="::1")
    assert done.returncode == 0, done.stderr
    called = yaml.safe_load(done.stdout)
    assert called["env"]["HCCL_IF_IP"] == "::1" and called["env"]["HCCL_SOCKET_IFNAME"] == "lo"
    arguments = called["arguments"]
    assert arguments[arguments.index("--data-parallel-address") + 1] == "::1"


def test_a_worker_starts_the_engine_of_its_rank_and_finds_the_leader(tmp_path: Path) -> None:
    plan = two_nodes()
    done = started(
        tmp_path, plan, 1, POD_IP="127.0.0.1", LWS_WORKER_INDEX="1", LWS_LEADER_ADDRESS="localhost"
    )
    assert done.returncode == 0, done.stderr
    arguments = yaml.safe_load(done.stdout)["arguments"]
    assert "--headless" in arguments
    assert arguments[arguments.index("--data-parallel-start-rank") + 1] == "1"
    assert arguments[arguments.index("--data-parallel-address") + 1] == "127.0.0.1"


def test_a_single_engine_needs_no_group(tmp_path: Path) -> None:
    done = started(tmp_path, single_node(), 0, POD_IP="127.0.0.1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"POD_IP": "192.0.2.77", "LWS_LEADER_ADDRESS": "localhost"},
            "no network interface has the address 192.0.2.77",
        ),
        ({"POD_IP": "127.0.0.1", "LWS_LEADER_ADDRESS": "leader.invalid"}, "no address for leader.invalid"),
    ],
)
def test_ops_018_a_pod_that_finds_no_address_says_which(
    env: dict[str, str], message: str, tmp_path: Path
) -> None:
    done = started(tmp_path, two_nodes(), 1, LWS_WORKER_INDEX="1", **env)
    assert done.returncode != 0
    assert message in done.stderr and "Traceback" not in done.stderr


def test_start_script_passes_shellcheck(tmp_path: Path) -> None:
    assert SHELLCHECK is not None
    (config,) = of_kind(objects(disaggregated()), "ConfigMap")
    files = []
    for key, text in config["data"].items():
        files.append(tmp_path / key)
        files[-1].write_text(text, encoding="utf-8")
    command = [SHELLCHECK, "--shell=bash", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_proxy_waits_no_longer_than_until_engines_answer(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("ok", encoding="utf-8")
    command = [sys.executable, "-c", WAIT, ready.as_uri(), ready.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_nodes_of_one_instance_are_started_in_the_order_of_their_ranks() -> None:
    plan = two_nodes()
    first: Node = plan.nodes[0]
    turned = msgspec.structs.replace(plan, nodes=(plan.nodes[1], first))
    (lws,) = of_kind(objects(turned), "LeaderWorkerSet")
    for template in templates(lws):
        assert template["spec"]["containers"][0]["args"] == ["server-0:SERVER_0", "server-1:SERVER_1"]
