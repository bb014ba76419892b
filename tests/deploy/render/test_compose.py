"""Compose files: what they run is what container.sh runs, and nothing is read that env.sh does not set."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import yaml

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.names import LABEL_FOLDER
from qanat.deploy.render.proxy import ROUTER
from tests.deploy.plan.example_plans import PLANS, disaggregated, single_node, two_nodes

SERVICE_KEYS = {
    "image": str,
    "container_name": str,
    "labels": dict,
    "network_mode": str,
    "pid": str,
    "init": bool,
    "entrypoint": list,
    "command": list,
    "stop_grace_period": str,
    "restart": str,
    "shm_size": str,
    "devices": list,
    "volumes": list,
    "healthcheck": dict,
}
"""Keys of a service in the specification of Compose that are used, and their kinds."""
VARIABLE = re.compile(r"(?<!\$)(?:\$\$)*\$\{([A-Z][A-Z0-9_]*)(?::[-?][^}]*)?\}")


def compose_files(plan: Plan, options: RenderOptions | None = None) -> dict[str, str]:
    files = render(plan, options or RenderOptions())
    return {name: file.text for name, file in files.items() if name.startswith("compose/")}


def service_of(text: str) -> dict[str, Any]:
    content = yaml.safe_load(text)
    assert set(content) == {"name", "services"}
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", content["name"])
    (service,) = content["services"].values()
    assert isinstance(service, dict)
    return service


def interpolated(text: str, values: dict[str, str]) -> str:
    """What Compose makes of a value."""
    filled = re.sub(
        r"\$\$|\$\{(\w+)[^}]*\}", lambda match: "$" if match[0] == "$$" else values[match[1]], text
    )
    return filled


@pytest.mark.parametrize("name", PLANS)
def test_every_node_has_a_file_of_the_keys_that_compose_knows(name: str) -> None:
    plan = PLANS[name]()
    files = compose_files(plan)
    wanted = [node.name for node in plan.nodes] + (["proxy"] if plan.proxy else [])
    assert sorted(files) == sorted(f"compose/{one}.yaml" for one in wanted)
    for text in files.values():
        service = service_of(text)
        for key, value in service.items():
            assert type(value) is SERVICE_KEYS[key], key
        assert service["network_mode"] == "host"
        for mount in service["volumes"]:
            assert set(mount) <= {"type", "source", "target", "read_only", "bind"}
            assert mount["bind"] == {"create_host_path": False}
            assert mount["target"].startswith("/")
        for duration in (service["stop_grace_period"], service.get("healthcheck", {}).get("interval", "1s")):
            assert re.fullmatch(r"\d+s", duration)


@pytest.mark.parametrize("name", PLANS)
def test_a_service_is_what_the_start_script_runs(name: str) -> None:
    plan = PLANS[name]()
    files = render(plan, RenderOptions())
    for node in plan.nodes:
        service = service_of(files[f"compose/{node.name}.yaml"].text)
        start = files[f"nodes/{node.name}/container.sh"].text
        assert service["devices"] == re.findall(r"--device (\S+)", start)
        command = start[start.index("docker run") :]
        assert service["command"][0] in command
        assert service["command"][0].removeprefix("/deployment/") in files
        assert service["image"] in start and f"--name {service['container_name']}" in command
        mounted = {mount["target"] for mount in service["volumes"]}
        assert {match.split(":")[1] for match in re.findall(r"--volume (/[^ ]+)", command)} <= mounted
        optional = re.search(r"optional_paths=\(([^)]*)\)", start)
        assert optional is not None and set(optional[1].split()) <= mounted


@pytest.mark.parametrize("name", PLANS)
def test_variables_are_those_of_env_sh(name: str) -> None:
    files = render(PLANS[name](), RenderOptions())
    known = set(re.findall(r"^(\w+)=", files["env.sh"].text, re.MULTILINE))
    for path, file in files.items():
        if path.startswith("compose/"):
            used = set(VARIABLE.findall(file.text))
            assert used and used <= known | {"DEPLOYMENT_DIR"}, path
            assert service_of(file.text)["labels"][LABEL_FOLDER].startswith("${DEPLOYMENT_DIR:?"), path


def test_a_dollar_sign_of_a_path_stays_one() -> None:
    path = "/data/$models/${x}"
    plan = single_node()
    wish = msgspec.structs.replace(plan.wish, model_path=path)
    service = service_of(
        compose_files(msgspec.structs.replace(plan, model_source=path, wish=wish))["compose/server-0.yaml"]
    )
    values = {"MODEL_PATH": "/m", "CACHE_DIR": "/c", "SHM_SIZE": "64g"}
    targets = [interpolated(mount["target"], values) for mount in service["volumes"]]
    sources = [interpolated(mount["source"], values) for mount in service["volumes"]]
    assert targets[sources.index("/m")] == path


def test_engines_that_answer_are_asked_whether_they_do() -> None:
    values = dict.fromkeys(("ADDRESS_PREFILL_0", "ADDRESS_DECODE_0"), "192.0.2.9")
    files = compose_files(disaggregated())
    urls = {
        name: interpolated(service_of(text)["healthcheck"]["test"][-1], values)
        for name, text in files.items()
    }
    assert urls == {
        "compose/prefill-0.yaml": "http://192.0.2.9:30060/health",
        "compose/decode-0.yaml": "http://192.0.2.9:30050/health",
        "compose/proxy.yaml": "http://192.0.2.9:8010/healthcheck",
    }
    two = compose_files(two_nodes())
    assert "healthcheck" in service_of(two["compose/server-0.yaml"])
    assert "healthcheck" not in service_of(two["compose/server-1.yaml"])


def test_the_probe_tells_an_answer_from_none() -> None:
    """The probe itself is tried by the tests of container.sh; here it is the one that is rendered."""
    test = service_of(compose_files(single_node())["compose/server-0.yaml"])["healthcheck"]["test"]
    assert test[:3] == ["CMD", "python3", "-c"]
    compile(test[3], "probe", "exec")


def test_a_node_of_a_group_does_not_come_back_alone() -> None:
    assert service_of(compose_files(single_node())["compose/server-0.yaml"])["restart"] == "unless-stopped"
    for text in compose_files(two_nodes()).values():
        assert service_of(text)["restart"] == "no"


def test_a_chip_that_needs_the_hosts_processes_gets_them() -> None:
    plan = msgspec.structs.replace(
        single_node(), chip="950DT", image="quay.io/ascend/vllm-ascend:v0.23.0-950dt"
    )
    service = service_of(compose_files(plan)["compose/server-0.yaml"])
    assert service["pid"] == "host" and "/dev/uburma" in service["devices"]
    assert "pid" not in service_of(compose_files(single_node())["compose/server-0.yaml"])


def test_there_is_nothing_without_an_image() -> None:
    assert compose_files(two_nodes(), RenderOptions(install="source")) == {}


def test_a_router_of_the_host_has_no_service() -> None:
    plan = disaggregated()
    assert plan.proxy is not None
    plan = msgspec.structs.replace(plan, proxy=msgspec.structs.replace(plan.proxy, program=ROUTER))
    assert sorted(compose_files(plan)) == ["compose/decode-0.yaml", "compose/prefill-0.yaml"]


@pytest.mark.parametrize("chip", [chip.name for chip in load_knowledge().chips])
def test_every_chip_has_files(chip: str) -> None:
    plan = msgspec.structs.replace(single_node(), chip=chip)
    assert len(compose_files(plan)) == 1
