"""`qanat deploy preflight` through the command line, and between two real processes."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.cli.main import main
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.rendered.inputs import with_edits
from tests.deploy.plan.example_plans import single_node, two_nodes
from tests.deploy.preflight.folders import quantised, shard
from tests.support.server_process import free_port

DEADLINE_S = 120
FIRST, SECOND = "127.0.0.1", "127.0.0.2"


def run(*words: str | Path) -> int:
    return main(["deploy", "preflight", *(str(word) for word in words)])


def write(path: Path, plan: Plan) -> Path:
    path.write_text(encode_plan(plan), encoding="utf-8")
    return path


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return write(tmp_path / "single.yaml", single_node())


@pytest.fixture
def group(tmp_path: Path) -> Path:
    return write(tmp_path / "group.yaml", loopback_group())


def loopback_group() -> Plan:
    """Two nodes on loopback, with ports that nobody else has just now, and none of HCCL's."""
    plan = with_edits(two_nodes(), {"ADDRESS_SERVER_0": FIRST, "ADDRESS_SERVER_1": SECOND})
    ports = (free_port() for _ in range(6))
    nodes = []
    for node in plan.nodes:
        transfer = {"kv_connector": "AnyConnector", "kv_port": next(ports)}
        flags = {**node.flags, "data-parallel-rpc-port": next(ports), "port": next(ports)}
        flags |= {"tensor-parallel-size": 1, "data-parallel-size": 1, "kv-transfer-config": transfer}
        env = {**node.env, "HCCL_HOST_SOCKET_PORT_RANGE": "auto"}
        nodes.append(msgspec.structs.replace(node, flags=flags, env=env))
    return msgspec.structs.replace(plan, nodes=tuple(nodes))


def test_this_machine_without_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """The real machine: nothing may break, and without cards nothing about them fails."""
    code = run("--json")
    report = json.loads(capsys.readouterr().out)
    assert code == (0 if report["is_ready"] else 1)
    assert not [each for each in report["results"] if "failed itself" in each["seen"]]
    found = {each["check"]: each["status"] for each in report["results"]}
    assert {"memory", "limits", "shared-memory", "cpu-count"} <= set(found)
    if not Path("/dev/davinci_manager").exists():
        assert found["npus-found"] == "unknown"
        run()
        text = capsys.readouterr().out
        assert "No NPU was found here: what needs one was not checked." in text


def test_the_text_says_what_why_and_what_to_do(single: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(single, "--model-path", "/no/such/folder") == 1
    text = capsys.readouterr().out
    assert "as server-0 of Qwen3.5-397B-A17B w8a8-mtp on A3, quay.io/ascend/vllm-ascend:v0.23.0-a3" in text
    assert (
        "FAIL     Model folder: there is no folder /no/such/folder, or it may not be read  [model-files]"
        in text
    )
    assert "         why: " in text and "         do: " in text
    assert "Not ready: what failed has to be changed before the start." in text


def test_ops_008_a_taken_port_fails_before_the_start(
    single: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as server:
        server.bind(("0.0.0.0", 0))
        server.listen()
        port = server.getsockname()[1]
        assert run(single, "--port", str(port), "--json") == 1
    report = json.loads(capsys.readouterr().out)
    told = [
        each["status"]
        for each in report["results"]
        if each["check"] == "ports-free"
        and f"--port {port} on 0.0.0.0: address already in use" in each["seen"]
    ]
    assert told == ["fail"]  # another program of this machine may have another port


def test_a_model_folder_with_a_pointer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = quantised(tmp_path / "model")
    assert run("--model-path", folder) in (0, 1)
    assert "FAIL     Weights" not in capsys.readouterr().out
    name = sorted(folder.glob("*.safetensors"))[0]
    name.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 4\n")
    assert run("--model-path", folder) == 1
    assert f"FAIL     Weights: {name.name} is a pointer of Git LFS" in capsys.readouterr().out


def test_a_rendered_folder_with_its_edits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "deployment"
    plan = write(tmp_path / "plan.yaml", two_nodes())
    assert main(["deploy", "render", str(plan), str(folder)]) == 0
    capsys.readouterr()
    env = folder / "env.sh"
    text = env.read_text(encoding="utf-8").replace("ADDRESS_SERVER_1=''", "ADDRESS_SERVER_1=203.0.113.7")
    env.write_text(text.replace("INTERFACE_SERVER_1=''", "INTERFACE_SERVER_1=none0"), encoding="utf-8")
    assert run(folder, "--node", "server-1", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    failed = {each["check"]: each["seen"] for each in report["results"] if each["status"] == "fail"}
    assert "203.0.113.7" in failed["node-address"] and "none0" in failed["interface"]


def test_a_recording_is_checked_again_elsewhere(
    tmp_path: Path, single: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(single, "--json", "--record", tmp_path / "kept")
    report = json.loads(capsys.readouterr().out)
    assert run(single, "--json", "--replay", tmp_path / "kept") == code
    assert json.loads(capsys.readouterr().out)["results"] == report["results"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["none.yaml"], "none.yaml cannot be read"),
        (["{single}", "{group}"], "one plan or folder"),
        (["{single}", "--node", "server-9"], "it has: server-0"),
        (["--node", "server-0"], "name the plan too"),
        (["{single}", "--image", "ubuntu:24.04"], "no version of vllm-ascend"),
        (["--agent"], "name the plan"),
        (["{group}", "--node", "server-0", "--agent", "--bind", "0.0.0.0"], "listens on every interface"),
        (["{group}", "--node", "server-0", "--agent", "--bind", "::"], "listens on every interface"),
        (["{group}", "--node", "server-0", "--agent", "--bind", "203.0.113.9"], "--bind 203.0.113.9"),
        (["{group}", "--node", "server-0", "--agent", "--bind", "somewhere"], "not a name"),
        (["{group}", "--node", "server-0", "--agent", "--bind", "127.0.0.1:x"], "expected ADDRESS"),
        (["{single}", "--agent"], "say with --bind"),
        (["{group}", "--node", "server-0", "--agent", "--peer", "127.0.0.1"], "leave one out"),
        (["{group}", "--node", "server-0", "--peer", "127.0.0.1"], "1 --peer and 0 --token"),
        (["{group}", "--node", "server-0", "--peer", "127.0.0.1:", "--token", "x"], "expected ADDRESS"),
        (["{single}", "--bind", "127.0.0.1"], "--agent listens"),
        (["--replay", "/no/such"], "--replay"),
        (["--port", "0"], "--port"),
        (["--nodes", "1"], "unknown flag --nodes"),
        (["{broken}"], "not a plan"),
        (["{group}"], "has an address of this host"),
    ],
)
def test_bad_command_lines(
    words: list[str], told: str, single: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("model: 1\n")
    edits = {"ADDRESS_SERVER_0": "203.0.113.1", "ADDRESS_SERVER_1": "203.0.113.2"}
    group = write(tmp_path / "group.yaml", with_edits(two_nodes(), edits))
    names = {"single": single, "group": group, "broken": tmp_path / "broken.yaml"}
    assert run(*(word.format(**names) for word in words)) == 2
    output = capsys.readouterr()
    assert told in output.err and "Traceback" not in output.err and output.out == ""


class Agent:
    """An agent in a process of its own."""

    def __init__(self, plan: Path, *flags: str, node: str = "server-0", bind: str = f"{FIRST}:0") -> None:
        words = [str(plan), "--node", node, "--agent", "--bind", bind, "--json", *flags]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "qanat", "deploy", "preflight", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.process.stderr.readline()
        line = self.process.stderr.readline()
        match = re.search(r"--peer (\S+) --token (\S+)", line)
        assert match is not None, line
        self.address, self.token = match.groups()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def end(self) -> tuple[int, dict[str, Any]]:
        """Exit code and report, once it has ended by itself."""
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, json.loads(output)


def peer(
    plan: Path, address: str, token: str, *flags: str, node: str = "server-1"
) -> tuple[int, dict[str, Any]]:
    words = [str(plan), "--node", node, "--peer", address, "--token", token, "--json", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "qanat", "deploy", "preflight", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def statuses(report: dict[str, Any], check: str) -> set[str]:
    return {each["status"] for each in report["results"] if each["check"] == check}


def seen(report: dict[str, Any], check: str) -> str:
    return "\n".join(each["seen"] for each in report["results"] if each["check"] == check)


@pytest.mark.parametrize("bind", [FIRST, SECOND])
def test_both_ends_report_the_same(group: Path, tmp_path: Path, bind: str) -> None:
    model = str(quantised(tmp_path / "model"))
    with Agent(group, "--model-path", model, bind=f"{bind}:0") as agent:
        code, report = peer(group, agent.address, agent.token, "--model-path", model)
        agent_code, agent_report = agent.end()
    assert report["results"] == agent_report["results"]
    assert (report["node"], agent_report["node"]) == ("server-1", "server-0")
    assert code == agent_code == (0 if report["is_ready"] else 1)
    for check in ("peer-plan", "peer-model", "peer-clock", "peer-reach"):
        assert statuses(report, check) == {"ok"}, seen(report, check)
    assert "3 ports of the plan reached, both directions together" in seen(report, "peer-reach")
    assert "server-1 to server-0" in seen(report, "peer-bandwidth")


def test_a_wrong_token_ends_the_visit_and_the_agent_waits_on(group: Path) -> None:
    with Agent(group) as agent:
        code, report = peer(group, agent.address, "x" * 32)
        assert code == 1 and agent.process.poll() is None
        assert "token" in seen(report, "peer-reach") or "closed" in seen(report, "peer-reach")
        code, _ = peer(group, agent.address, agent.token)
        assert code == agent.end()[0]


def test_an_agent_works_once(group: Path) -> None:
    with Agent(group) as agent:
        peer(group, agent.address, agent.token)
        agent.end()
        code, report = peer(group, agent.address, agent.token)
    assert code == 1 and "does the agent wait there?" in seen(report, "peer-reach")


def test_an_agent_ends_itself(group: Path) -> None:
    with Agent(group, "--timeout", "1") as agent:
        code, report = agent.end()
    assert code == 1 and "no node with the token came within 1 s" in seen(report, "peer-reach")


def test_strangers_end_the_agent_after_some_time(group: Path) -> None:
    with Agent(group) as agent:
        host, port = agent.address.rsplit(":", 1)
        for _ in range(20):
            with socket.create_connection((host, int(port))) as connection:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    while connection.recv(4096):
                        pass
        code, report = agent.end()
    assert code == 1 and "20 visits without the token" in seen(report, "peer-reach")


def test_different_plans_and_models_are_told_by_both(group: Path, tmp_path: Path) -> None:
    other_plan = msgspec.structs.replace(loopback_group(), image="quay.io/ascend/vllm-ascend:v0.22.1rc1")
    other = write(tmp_path / "other.yaml", other_plan)
    one, two = quantised(tmp_path / "one"), quantised(tmp_path / "two")
    sorted(two.glob("*.safetensors"))[0].write_bytes(shard({"a": ("I8", (1,))}))
    with Agent(group, "--model-path", str(one)) as agent:
        code, report = peer(other, agent.address, agent.token, "--model-path", str(two))
        agent_code, agent_report = agent.end()
    assert code == agent_code == 1 and report["results"] == agent_report["results"]
    assert statuses(report, "peer-plan") == {"fail"}
    assert "v0.22.1rc1" in seen(report, "peer-versions") and "fail" in statuses(report, "peer-versions")
    assert "the model folders differ in: shards" in seen(report, "peer-model")


def test_two_hosts_that_are_the_same_node(group: Path) -> None:
    with Agent(group) as agent:
        _, report = peer(group, agent.address, agent.token, node="server-0")
        agent.end()
    assert "are server-0" in seen(report, "peer-plan") and statuses(report, "peer-plan") == {"fail"}


def test_several_agents_one_after_another(group: Path) -> None:
    with Agent(group, bind=f"{FIRST}:0") as one, Agent(group, bind=f"{SECOND}:0") as two:
        words = ["--peer", one.address, two.address, "--token", one.token, two.token]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "qanat",
                "deploy",
                "preflight",
                str(group),
                "--node",
                "server-1",
                "--json",
                *words,
            ],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        first, second = one.end()[1], two.end()[1]
    results = json.loads(done.stdout)["results"]
    assert results == first["results"] + second["results"]


def test_a_peer_that_is_no_agent(group: Path) -> None:
    with socket.socket() as server:
        server.bind((FIRST, 0))
        server.listen()
        process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "qanat",
                    "deploy",
                    "preflight",
                    str(group),
                    "--node",
                    "server-1",
                    "--json",
                ),
                *("--peer", f"{FIRST}:{server.getsockname()[1]}", "--token", "x"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "no agent of this version of qanat" in seen(json.loads(output), "peer-reach")


def test_every_address_is_listened_on_only_if_that_is_meant(group: Path) -> None:
    with Agent(group, "--any-address", bind="0.0.0.0:0") as agent:
        assert agent.address.startswith(
            f"{FIRST}:"
        )  # the node's address in the plan, as nobody can go to 0.0.0.0
        code, report = peer(group, agent.address, agent.token)
        assert agent.end()[1]["results"] == report["results"] and code == (0 if report["is_ready"] else 1)


def test_a_folder_that_installs_from_source_needs_no_containers(
    tmp_path: Path, single: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deployment"
    assert main(["deploy", "render", str(single), str(folder), "--install", "source"]) == 0
    capsys.readouterr()
    run(folder, "--json")
    report = json.loads(capsys.readouterr().out)
    assert not statuses(report, "container-engine") and statuses(report, "cann-version")
