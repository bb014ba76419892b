"""IPv6 addresses: in brackets in every URL, one family in a deployment, and what engines listen on is of it."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.core.errors import ConfigError
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.example_plans import PLANS, disaggregated, single_node, two_nodes
from tests.deploy.render.machine import Machine
from tests.deploy.render.test_serve import ray_plan, record, with_role, words

BROKEN = re.compile(r"https?://(?:[0-9a-f]+:){2}|https?://\$\{?ADDRESS|\"\$\{?ADDRESS_\w+\}?\":\"")


def with_addresses(plan: Plan, *addresses: str) -> Plan:
    """A plan whose nodes have these addresses, where theirs stand in flags and variables too."""
    nodes = []
    for node, address in zip(plan.nodes, addresses, strict=True):
        env = {name: address if name == "HCCL_IF_IP" else value for name, value in node.env.items()}
        flags = {
            name: address if value == node.address and value else value for name, value in node.flags.items()
        }
        nodes.append(msgspec.structs.replace(node, address=address, env=env, flags=flags))
    return msgspec.structs.replace(plan, nodes=tuple(nodes))


def ipv6(plan: Plan) -> Plan:
    return with_addresses(plan, *(f"2001:db8::{number}" for number in range(1, len(plan.nodes) + 1)))


@pytest.mark.parametrize("install", ["image", "source"])
@pytest.mark.parametrize("name", PLANS)
def test_urls_have_brackets_everywhere(name: str, install: Any) -> None:
    files = render(ipv6(PLANS[name]()), RenderOptions(install=install))
    found = {path: BROKEN.findall(file.text) for path, file in files.items() if path != "plan.yaml"}
    assert {path: urls for path, urls in found.items() if urls} == {}
    content = json.loads(files["deployment.json"].text)
    urls = [node["ready"]["url"] for node in content["nodes"] if node["ready"] is not None]
    assert all(url.startswith("http://[2001:db8::") for url in urls)
    assert "http://[2001:db8::1]:" in files["README.md"].text


@pytest.mark.parametrize("name", PLANS)
def test_ipv4_folders_have_none(name: str) -> None:
    for path, file in render(PLANS[name](), RenderOptions()).items():
        assert not re.search(r"http://\[", file.text), path


def test_an_engine_listens_where_it_is_reached(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ipv6(two_nodes()))
    machine.edit(INTERFACE_SERVER_0="eth0", INTERFACE_SERVER_1="eth0")
    record(machine, "vllm")
    result = machine.run("nodes/server-0/serve.sh")
    assert result.returncode == 0, result.stderr
    assert words(machine)[words(machine).index("--host") + 1] == "::"
    assert words(machine)[words(machine).index("--data-parallel-address") + 1] == "2001:db8::1"
    assert "ready at http://[::1]:8000/health" in machine.run("nodes/server-0/container.sh").stdout


def test_a_port_that_is_taken_is_found_on_ipv6(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    machine = Machine(tmp_path, ipv6(single_node()))
    (machine.programs / "timeout").unlink()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        script = machine.folder / "nodes/server-0/container.sh"
        script.write_text(script.read_text().replace("[::1]:8010", f"[::1]:{port}"))
        result = machine.run("nodes/server-0/container.sh")
    assert result.returncode == 1
    assert f"another program listens on [::1]:{port} already" in result.stderr


@pytest.mark.parametrize(
    ("plan", "address", "family"),
    [(disaggregated(), "2001:db8::7", "IPv4"), (ipv6(disaggregated()), "192.0.2.7", "IPv6")],
)
@pytest.mark.parametrize(
    "script", ["nodes/decode-0/container.sh", "nodes/decode-0/serve.sh", "proxy/proxy.sh"]
)
def test_an_address_of_the_other_family_in_env_sh_is_refused(
    tmp_path: Path, plan: Plan, address: str, family: str, script: str
) -> None:
    machine = Machine(tmp_path, plan)
    machine.edit(ADDRESS_PREFILL_0=address)
    result = machine.run(script)
    assert result.returncode == 1
    assert f"ADDRESS_PREFILL_0 is {address}, and these scripts were written for {family}" in result.stderr
    assert machine.calls("run") == []


def test_plans_of_both_families_and_ray_with_ipv6_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1 is no IPv6 address"):
        render(with_addresses(two_nodes(), "192.0.2.1", "2001:db8::2"), RenderOptions())
    with pytest.raises(ConfigError, match="Ray is started with IPv4 addresses only"):
        render(ipv6(ray_plan()), RenderOptions())


@pytest.mark.parametrize("place", ["role", "node"])
@pytest.mark.parametrize(("host", "url"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_a_host_that_was_asked_for_is_listened_on_and_asked(
    tmp_path: Path, place: str, host: str, url: str
) -> None:
    plan = single_node()
    flags = {**plan.roles[0].flags, "host": "0.0.0.0"}
    node = msgspec.structs.replace(plan.nodes[0], flags={"host": "0.0.0.0"})
    if place == "role":
        flags["host"] = host
    else:
        node = msgspec.structs.replace(node, flags={"host": host})
    plan = msgspec.structs.replace(with_role(plan, flags=flags), nodes=(node,))
    machine = Machine(tmp_path, plan)
    record(machine, "vllm")
    assert machine.run("nodes/server-0/serve.sh").returncode == 0
    given = words(machine)
    assert [given[at + 1] for at, word in enumerate(given) if word == "--host"] == [host]
    assert f"ready at http://{url}:8010/health" in machine.run("nodes/server-0/container.sh").stdout
    content = json.loads((machine.folder / "deployment.json").read_text())
    assert content["nodes"][0]["ready"]["url"] == f"http://{url}:8010/health"
    assert f'url="http://{url}:8010"' in (machine.folder / "checks/verify.sh").read_text()
