from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from qanat.deploy.plan.model import Plan
from qanat.deploy.render.names import container_name, deployment_name
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes
from tests.deploy.render.machine import Machine

START = "nodes/server-0/container.sh"
STOP = "nodes/server-0/stop.sh"
NAME = container_name(single_node(), "server-0")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, single_node())


def test_a_container_is_started_with_what_it_needs_and_no_more(machine: Machine) -> None:
    result = machine.run(START)
    assert result.returncode == 0, result.stderr
    assert "ready at http://127.0.0.1:8010/health" in result.stdout
    (container,) = machine.docker["containers"].values()
    options = container["options"]
    assert container["image"] == "quay.io/ascend/vllm-ascend:v0.23.0-a3"
    assert container["command"] == ["/deployment/nodes/server-0/serve.sh"]
    assert {
        *map("/dev/davinci{}".format, range(16)),
        "/dev/davinci_manager",
        "/dev/devmm_svm",
        "/dev/hisi_hdc",
    } == {*options["--device"]}
    assert "--privileged" not in options
    assert options["--network"] == ["host"]
    mounts = options["--volume"]
    assert f"{machine.weights}:/data/models/Qwen3.5-397B-A17B-w8a8-mtp:ro" in mounts
    assert f"{machine.root}/home/.cache:/root/.cache" in mounts and (machine.root / "home/.cache").is_dir()
    assert f"{machine.folder}:/deployment:ro" in mounts
    assert f"{machine.folder}/logs:/var/log/qanat" in mounts
    hccn = f"{machine.root}/etc/hccn.conf"
    assert f"{hccn}:{hccn}:ro" in mounts
    assert (machine.folder / "logs" / "server-0.log").is_symlink()


def test_a_container_that_runs_is_left_alone(machine: Machine) -> None:
    assert machine.run(START).returncode == 0
    before = machine.docker["containers"]
    result = machine.run(START)
    assert result.returncode == 0
    assert "it runs already" in result.stdout
    assert machine.docker["containers"] == before
    assert len(machine.calls("run")) == 1


@pytest.mark.parametrize(
    ("file", "change"),
    [("env.sh", "export TASK_QUEUE_ENABLE=0"), ("env.sh", "SHM_SIZE=1g"), ("nodes/server-0/serve.sh", "# a")],
)
def test_a_container_with_other_settings_is_told_not_replaced(
    machine: Machine, file: str, change: str
) -> None:
    assert machine.run(START).returncode == 0
    (machine.folder / file).write_text((machine.folder / file).read_text() + f"\n{change}\n")
    result = machine.run(START)
    assert result.returncode == 1
    assert "run stop.sh first" in result.stderr
    assert len(machine.calls("run")) == 1
    assert machine.run(STOP).returncode == 0
    assert machine.run(START).returncode == 0
    assert len(machine.calls("run")) == 2


def test_what_env_sh_says_of_other_nodes_and_in_comments_is_no_other_setting(tmp_path: Path) -> None:
    machine = Machine(tmp_path, disaggregated())
    start = "nodes/prefill-0/container.sh"
    assert machine.run(start).returncode == 0
    machine.edit(INTERFACE_DECODE_0="bond7", ADDRESS_DECODE_0="192.0.2.9", READY_TIMEOUT_S="5")
    text = (machine.folder / "env.sh").read_text()
    (machine.folder / "env.sh").write_text(f"# a note\n\n{text}\n  # another\n")
    assert machine.run(start).returncode == 0
    machine.edit(INTERFACE_PREFILL_0="bond7")
    result = machine.run(start)
    assert result.returncode == 1
    assert "other settings; run stop.sh first" in result.stderr


def named(plan: Plan, served: str, model: str, port: int) -> Plan:
    return msgspec.structs.replace(plan, served_model_name=served, model=model, port=port)


def test_deployments_that_look_alike_have_names_of_their_own() -> None:
    plans = [
        named(single_node(), *what)
        for what in (
            ("模型甲", "Qwen3.5-35B-A3B", 8000),
            ("模型乙", "Qwen3-32B", 9000),
            ("A b", "Qwen3-32B", 8000),
            ("a-b", "Qwen3-32B", 8000),
            ("a-b", "Qwen3-32B", 8001),
            ("a-b", "Qwen3-14B", 8000),
        )
    ]
    names = [deployment_name(plan) for plan in plans]
    assert len({*names}) == len(plans)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_.-]*-[0-9a-f]{6}", name) for name in names)
    changed = msgspec.structs.replace(plans[3], weights="w8a8", release="0.18.0", warnings=("a",))
    assert deployment_name(changed) == names[3]


def test_stop_leaves_another_deployment_alone_whose_name_looks_the_same(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = Machine(tmp_path / "one", named(single_node(), "模型甲", "Qwen3.5-35B-A3B", 8010))
    two = Machine(tmp_path / "two", named(single_node(), "模型乙", "Qwen3-32B", 8010))
    assert one.run(START).returncode == 0
    two.set_docker(**one.docker)
    result = two.run(STOP)
    assert result.returncode == 0 and "nothing to stop" in result.stdout
    assert two.docker["containers"] == one.docker["containers"]


def test_the_same_plan_in_another_folder_stops_nothing(machine: Machine) -> None:
    assert machine.run(START).returncode == 0
    other = machine.root / "copy"
    shutil.copytree(machine.folder, other, symlinks=True)
    (other / "env.sh").write_text((other / "env.sh").read_text() + "\nSHM_SIZE=1g\n")
    for script, told in ((STOP, "was started from the folder"), (START, "it runs from the folder")):
        result = subprocess.run(
            [other / script], env=machine.variables, capture_output=True, text=True, timeout=60
        )
        assert result.returncode == 1
        assert f"{told} {machine.folder}" in result.stderr
        assert "the stop.sh there ends it" in result.stderr
    assert machine.docker["containers"][NAME]["is_running"]


def test_a_folder_that_was_moved_still_stops_what_it_started(machine: Machine) -> None:
    assert machine.run(START).returncode == 0
    moved = machine.root / "moved"
    machine.folder.rename(moved)
    result = subprocess.run([moved / STOP], env=machine.variables, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert machine.docker["containers"] == {}


def test_a_container_of_somebody_else_is_not_touched(machine: Machine) -> None:
    foreign = {"is_running": True, "image": "other", "labels": {}, "options": {}, "command": []}
    machine.set_docker(containers={NAME: foreign})
    result = machine.run(START)
    assert result.returncode == 1
    assert "not of this deployment" in result.stderr
    assert machine.run(STOP).returncode == 0
    assert machine.docker["containers"] == {NAME: foreign}


@pytest.mark.parametrize("tool", ["podman", "nerdctl"])
def test_another_tool_than_docker_is_named(machine: Machine, tool: str) -> None:
    usual = machine.root / "usual"
    usual.mkdir()
    for program in (*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()):
        if program.name not in ("docker", "podman", "nerdctl") and not (usual / program.name).is_symlink():
            (usual / program.name).symlink_to(program)
    machine.variables["PATH"] = f"{machine.programs}:{usual}"
    (machine.programs / "docker").rename(machine.programs / tool)
    result = machine.run(START)
    assert result.returncode == 1
    assert f"{tool} is on this host, but docker is not, which this script calls" in result.stderr
    stopped = machine.run(STOP)
    assert stopped.returncode == 1 and "docker is not on this host, or not in PATH" in stopped.stderr
    (machine.programs / tool).unlink()
    assert "docker does not answer" in machine.run(START).stderr


def test_one_that_ended_is_replaced(machine: Machine) -> None:
    assert machine.run(START).returncode == 0
    state = machine.docker
    state["containers"][NAME]["is_running"] = False
    machine.set_docker(**state)
    assert machine.run(START).returncode == 0
    assert len(machine.calls("run")) == 2
    assert machine.docker["containers"][NAME]["is_running"]


def test_it_waits_until_the_engine_answers(machine: Machine) -> None:
    machine.set_docker(polls_until_ready=4)
    result = machine.run(START)
    assert result.returncode == 0
    assert machine.docker["polls"] == 4
    assert result.stdout.index("waiting for") < result.stdout.index("ready at")


def test_it_does_not_wait_for_ever(machine: Machine) -> None:
    machine.set_docker(polls_until_ready=10**9)
    machine.edit(READY_TIMEOUT_S="0")
    result = machine.run(START)
    assert result.returncode == 1
    assert "not ready after 0 s" in result.stderr
    assert machine.docker["containers"][NAME]["is_running"]


def test_ops_008_a_port_that_is_taken_is_told_before_the_engine_loads(machine: Machine) -> None:
    (machine.programs / "timeout").unlink()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        script = machine.folder / START
        script.write_text(
            script.read_text().replace("127.0.0.1:8010", f"127.0.0.1:{port}").replace(":8010/", f":{port}/")
        )
        result = machine.run(START)
    assert result.returncode == 1
    assert f"another program listens on 127.0.0.1:{port} already" in result.stderr
    assert machine.calls("run") == []


def test_an_engine_that_ends_is_told_with_its_last_words(machine: Machine) -> None:
    machine.set_docker(polls_until_ready=10**9, dies_at_poll=2)
    (machine.folder / "logs").mkdir()
    machine.program("ln", '/bin/ln "$@"; printf "RuntimeError: out of memory\\n" >>"${@: -1}"')
    result = machine.run(START)
    assert result.returncode == 1
    assert "RuntimeError: out of memory" in result.stderr
    assert "it ended before it was ready" in result.stderr


def test_no_wait_returns_at_once(machine: Machine) -> None:
    machine.set_docker(polls_until_ready=10**9)
    result = machine.run(START, "--no-wait")
    assert result.returncode == 0
    assert machine.calls("exec") == []


@pytest.mark.parametrize("path", ["dev/davinci3", "dev/hisi_hdc", "usr/local/Ascend/driver/lib64"])
def test_a_missing_device_stops_it_before_docker_runs(machine: Machine, path: str) -> None:
    (machine.root / path).unlink()
    result = machine.run(START)
    assert result.returncode == 1
    assert f"/{path} is not on this host" in result.stderr
    assert machine.calls("run") == []


def test_missing_weights_stop_it_before_docker_makes_an_empty_folder(machine: Machine) -> None:
    machine.weights.rmdir()
    result = machine.run(START)
    assert result.returncode == 1
    assert f"{machine.weights} is not on this host" in result.stderr
    assert machine.calls("run") == []


def test_what_a_host_may_lack_is_left_out_and_told(machine: Machine) -> None:
    (machine.root / "usr/local/bin/npu-smi").unlink()
    result = machine.run(START)
    assert result.returncode == 0
    assert "npu-smi is not on this host and is left out" in result.stdout
    (container,) = machine.docker["containers"].values()
    assert not any("npu-smi" in mount for mount in container["options"]["--volume"])


def test_disaggregated_engines_need_the_addresses_of_their_npus(tmp_path: Path) -> None:
    machine = Machine(tmp_path, disaggregated())
    (machine.root / "etc/hccn.conf").unlink()
    result = machine.run("nodes/prefill-0/container.sh")
    assert result.returncode == 1
    assert "/etc/hccn.conf is not on this host" in result.stderr


def test_docker_that_fails_is_told(machine: Machine) -> None:
    machine.set_docker(is_run_refused=True)
    result = machine.run(START)
    assert result.returncode == 125
    assert "no such device" in result.stderr
    machine.set_docker(is_down=True)
    result = machine.run(START)
    assert result.returncode == 1
    assert "docker does not answer" in result.stderr


def test_a_folder_with_a_colon_is_refused(machine: Machine) -> None:
    machine.edit(CACHE_DIR="/data/a:b")
    result = machine.run(START)
    assert result.returncode == 1
    assert "holds a colon" in result.stderr


@pytest.mark.parametrize("name", ["LOG_DIR", "CACHE_DIR", "MODEL_PATH"])
def test_a_relative_folder_is_refused(machine: Machine, name: str) -> None:
    machine.edit(**{name: "there"})
    result = machine.run(START)
    assert result.returncode == 1
    assert "there is a relative path" in result.stderr and "env.sh" in result.stderr
    assert machine.calls("run") == []


def test_an_unknown_argument_is_refused(machine: Machine) -> None:
    result = machine.run(START, "--nowait")
    assert result.returncode == 1
    assert "it takes --no-wait" in result.stderr


def test_an_address_that_is_missing_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, two_nodes())
    result = machine.run("nodes/server-1/container.sh")
    assert result.returncode == 1
    assert "ADDRESS_SERVER_0 is empty; set it in" in result.stderr
    assert machine.docker["calls"] == []


def test_a_node_without_requests_is_not_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, two_nodes())
    names = ("ADDRESS_SERVER_0", "INTERFACE_SERVER_0", "ADDRESS_SERVER_1", "INTERFACE_SERVER_1")
    machine.edit(**dict(zip(names, ("192.0.2.1", "eth0", "192.0.2.2", "eth1"), strict=True)))
    result = machine.run("nodes/server-1/container.sh")
    assert result.returncode == 0
    assert "it answers no requests itself" in result.stdout
    assert machine.calls("exec") == []


def test_stop_ends_its_own_container_only(machine: Machine) -> None:
    assert machine.run(START).returncode == 0
    other = {**machine.docker["containers"][NAME]}
    other["labels"] = {**other["labels"], "io.qanat.node": "server-1"}
    machine.set_docker(
        containers={**machine.docker["containers"], container_name(single_node(), "server-1"): other}
    )
    result = machine.run(STOP)
    assert result.returncode == 0
    assert list(machine.docker["containers"]) == [container_name(single_node(), "server-1")]
    again = machine.run(STOP)
    assert again.returncode == 0
    assert "nothing to stop" in again.stdout


def test_the_proxy_starts_without_devices_and_stops(tmp_path: Path) -> None:
    machine = Machine(tmp_path, disaggregated())
    result = machine.run("proxy/proxy.sh")
    assert result.returncode == 0, result.stderr
    assert "ready at http://192.0.2.1:8010/healthcheck" in result.stdout
    (container,) = machine.docker["containers"].values()
    assert "--device" not in container["options"]
    assert container["command"] == ["/deployment/proxy/serve.sh"]
    assert machine.run("proxy/stop.sh").returncode == 0
    assert machine.docker["containers"] == {}
