from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.wish import Topology
from qanat.deploy.render.engine import json_text
from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes
from tests.deploy.render.machine import Machine

ADDRESSES = {
    "ADDRESS_SERVER_0": "192.0.2.1",
    "INTERFACE_SERVER_0": "eth0",
    "ADDRESS_SERVER_1": "192.0.2.2",
    "INTERFACE_SERVER_1": "bond0",
}
RECORDER = """\
{ printf '%s\\0' "$0" "$@" >"$record.words"; env --null >"$record.env"; }
printf 'INFO engine starts\\n'
"""


def record(machine: Machine, program: str) -> None:
    machine.program(program, f"record='{machine.root}/{program}'\n{RECORDER}")


def words(machine: Machine, program: str = "vllm") -> list[str]:
    return (machine.root / f"{program}.words").read_bytes().decode().split("\0")[1:-1]


def environment(machine: Machine, program: str = "vllm") -> dict[str, str]:
    lines = (machine.root / f"{program}.env").read_bytes().decode().split("\0")[:-1]
    return dict(line.split("=", 1) for line in lines)


def with_role(plan: Plan, **changes: Any) -> Plan:
    role = msgspec.structs.replace(plan.roles[0], **changes)
    return msgspec.structs.replace(plan, roles=(role, *plan.roles[1:]))


def test_the_engine_gets_the_flags_of_the_plan(tmp_path: Path) -> None:
    plan = single_node()
    machine = Machine(tmp_path, plan)
    record(machine, "vllm")
    result = machine.run("nodes/server-0/serve.sh")
    assert result.returncode == 0, result.stderr
    given_words = words(machine)
    assert given_words[:2] == ["serve", plan.model_source]
    flags = dict(plan.roles[0].flags)
    at = 2
    for name, value in flags.items():
        if isinstance(value, bool):
            assert given_words[at] == (f"--{name}" if value else f"--no-{name}")
            at += 1
        else:
            assert given_words[at] == f"--{name}"
            text = given_words[at + 1]
            assert (json.loads(text) if isinstance(value, dict) else text) == (
                value if isinstance(value, dict) else str(value)
            )
            at += 2
    assert at == len(given_words)
    assert plan.roles[0].env.items() <= environment(machine).items()
    assert "VLLM_HOST_IP" not in environment(machine)


def test_addresses_come_from_the_file_that_a_person_edits(tmp_path: Path) -> None:
    machine = Machine(tmp_path, two_nodes())
    machine.edit(**ADDRESSES)
    record(machine, "vllm")
    assert machine.run("nodes/server-1/serve.sh").returncode == 0
    given_words = words(machine)
    assert given_words[given_words.index("--data-parallel-address") + 1] == "192.0.2.1"
    assert "--headless" in given_words
    variables = environment(machine)
    assert variables["HCCL_IF_IP"] == variables["VLLM_HOST_IP"] == "192.0.2.2"
    assert "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES" not in variables
    assert variables["HCCL_SOCKET_IFNAME"] == variables["GLOO_SOCKET_IFNAME"] == "bond0"


@pytest.mark.parametrize("name", ["ADDRESS_SERVER_0", "ADDRESS_SERVER_1", "INTERFACE_SERVER_1"])
def test_an_address_that_is_missing_is_told_before_the_engine_starts(tmp_path: Path, name: str) -> None:
    machine = Machine(tmp_path, two_nodes())
    machine.edit(**{**ADDRESSES, name: ""})
    record(machine, "vllm")
    result = machine.run("nodes/server-1/serve.sh")
    assert result.returncode == 1
    assert f"{name} is empty; set it in" in result.stderr
    assert not (tmp_path / "vllm.words").exists()


def test_disaggregated_engines_go_past_web_proxies(tmp_path: Path) -> None:
    machine = Machine(tmp_path, disaggregated())
    record(machine, "vllm")
    variables = {"http_proxy": "http://proxy.example:3128", "HTTPS_PROXY": "http://proxy.example:3128"}
    assert machine.run("nodes/decode-0/serve.sh", variables=variables).returncode == 0
    assert not {"http_proxy", "HTTPS_PROXY"} & environment(machine).keys()
    given_words = words(machine)
    assert given_words[given_words.index("--host") + 1] == "192.0.2.2"
    # Connectors tell each other this address; without it they ask the default route.
    assert environment(machine)["VLLM_HOST_IP"] == "192.0.2.2"


def test_engines_of_one_node_keep_web_proxies_for_downloads(tmp_path: Path) -> None:
    machine = Machine(tmp_path, single_node())
    record(machine, "vllm")
    machine.run("nodes/server-0/serve.sh", variables={"http_proxy": "http://proxy.example:3128"})
    assert environment(machine)["http_proxy"] == "http://proxy.example:3128"


def test_counters_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "metrics of vllm"
    folder.mkdir()
    (folder / "counter_1.db").touch()
    (folder / "notes.txt").touch()
    plan = single_node()
    env = {**plan.roles[0].env, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    (tmp_path / "machine").mkdir()
    machine = Machine(tmp_path / "machine", with_role(plan, env=env))
    record(machine, "vllm")
    assert machine.run("nodes/server-0/serve.sh").returncode == 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert environment(machine)["PROMETHEUS_MULTIPROC_DIR"] == str(folder)


def test_lists_of_paths_keep_what_the_image_has(tmp_path: Path) -> None:
    plan = single_node()
    machine = Machine(tmp_path, with_role(plan, env={"LD_LIBRARY_PATH": "/opt/mooncake"}))
    record(machine, "vllm")
    machine.run("nodes/server-0/serve.sh", variables={"LD_LIBRARY_PATH": "/usr/local/lib"})
    assert environment(machine)["LD_LIBRARY_PATH"] == "/opt/mooncake:/usr/local/lib"
    machine.run("nodes/server-0/serve.sh")
    assert environment(machine)["LD_LIBRARY_PATH"] == "/opt/mooncake"


def test_the_environment_of_cann_is_read_though_it_is_careless(tmp_path: Path) -> None:
    machine = Machine(tmp_path, single_node())
    record(machine, "vllm")
    careless = tmp_path / "set_env.sh"
    careless.write_text('export ASCEND_TOOLKIT_HOME="/opt/cann$UNSET_VARIABLE"\nfalse\n')
    library = tmp_path / "libjemalloc.so.2"
    library.touch()
    script = machine.folder / "nodes/server-0/serve.sh"
    text = script.read_text().replace("/usr/local/Ascend/ascend-toolkit/set_env.sh", str(careless))
    script.write_text(text.replace("/usr/lib64/libjemalloc.so.2", str(library)))
    result = machine.run("nodes/server-0/serve.sh")
    assert result.returncode == 0, result.stderr
    variables = environment(machine)
    assert variables["ASCEND_TOOLKIT_HOME"] == "/opt/cann"
    assert variables["LD_PRELOAD"] == str(library)


def test_an_allocator_that_is_not_there_is_not_preloaded(tmp_path: Path) -> None:
    library = tmp_path / "libjemalloc.so.2"
    env = {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    (tmp_path / "machine").mkdir()
    machine = Machine(tmp_path / "machine", with_role(single_node(), env=env))
    record(machine, "vllm")
    script = machine.folder / "nodes/server-0/serve.sh"
    script.write_text(script.read_text().replace("  /usr/lib", "  /no/such/lib"))
    assert machine.run("nodes/server-0/serve.sh").returncode == 0
    assert "LD_PRELOAD" not in environment(machine)
    library.touch()
    machine.run("nodes/server-0/serve.sh", variables={"LD_PRELOAD": "/opt/first.so"})
    assert environment(machine)["LD_PRELOAD"] == f"{library}:/opt/first.so"


def test_a_run_is_logged_to_its_file_and_to_the_terminal(tmp_path: Path) -> None:
    machine = Machine(tmp_path, single_node())
    record(machine, "vllm")
    log = tmp_path / "run.log"
    result = machine.run("nodes/server-0/serve.sh", variables={"LOG_FILE": str(log)})
    assert "INFO engine starts" in result.stdout
    assert "INFO engine starts" in log.read_text()


def test_the_proxy_gets_hosts_and_ports_in_one_order(tmp_path: Path) -> None:
    plan = disaggregated()
    second = msgspec.structs.replace(
        plan.nodes[1],
        name="decode-1",
        instance=1,
        address="192.0.2.3",
        flags={"host": "192.0.2.3", "port": 30051},
    )
    plan = msgspec.structs.replace(plan, nodes=(*plan.nodes, second))
    machine = Machine(tmp_path, plan)
    record(machine, "python3")
    result = machine.run("proxy/serve.sh", variables={"https_proxy": "http://proxy.example:3128"})
    assert result.returncode == 0, result.stderr
    program, *given_words = words(machine, "python3")
    assert program.endswith("/load_balance_proxy_layerwise_server_example.py")
    expected = (
        "--prefiller-hosts 192.0.2.1 --prefiller-ports 30060 --decoder-hosts 192.0.2.2 192.0.2.3 "
        "--decoder-ports 30050 30051 --host 192.0.2.1 --port 8010"
    )
    assert given_words == expected.split()
    assert "https_proxy" not in environment(machine, "python3")


def ray_plan() -> Plan:
    plan = two_nodes()
    flags = {**plan.roles[0].flags, "distributed-executor-backend": "ray", "tensor-parallel-size": 16}
    for name in ("data-parallel-size", "data-parallel-size-local"):
        del flags[name]
    plan = with_role(plan, flags=flags, tensor_parallel_size=16, data_parallel_size=1)
    own = ({"host": "0.0.0.0", "port": 8000}, {})
    nodes = tuple(msgspec.structs.replace(node, flags=own[node.rank]) for node in plan.nodes)
    return msgspec.structs.replace(plan, topology=Topology.RAY, nodes=nodes)


def test_ray_is_started_before_the_engine_and_waits_for_all_nodes(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ray_plan())
    machine.edit(**ADDRESSES)
    record(machine, "vllm")
    record(machine, "ray")
    count = tmp_path / "count"
    machine.program("python3", f"printf x >>'{count}'; [[ \"$(wc -c <'{count}')\" -ge 3 && \"$3\" == 2 ]]")
    result = machine.run("nodes/server-0/serve.sh")
    assert result.returncode == 0, result.stderr
    expected = "start --head --node-ip-address 192.0.2.1 --port 6379 --disable-usage-stats"
    assert words(machine, "ray") == expected.split()
    variables = environment(machine, "ray")
    assert variables["RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"] == "1"
    assert variables["VLLM_HOST_IP"] == "192.0.2.1"
    assert result.stdout.count("waiting until 2 nodes are in the Ray cluster") == 2
    assert words(machine)[0] == "serve"


def test_ray_workers_join_the_head_and_serve_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, ray_plan())
    machine.edit(**{**ADDRESSES, "READY_TIMEOUT_S": "0"})
    record(machine, "vllm")
    record(machine, "ray")
    machine.edit(ADDRESS_SERVER_0="127.0.0.1", RAY_PORT="1")
    result = machine.run("nodes/server-1/serve.sh")
    assert result.returncode == 1
    assert "did not answer at 127.0.0.1:1 within 0 s" in result.stderr
    script = machine.folder / "nodes/server-1/serve.sh"
    script.write_text(script.read_text().replace("/dev/tcp/$head_address/$RAY_PORT", "/dev/null"))
    assert machine.run("nodes/server-1/serve.sh").returncode == 0
    expected = "start --address 127.0.0.1:1 --node-ip-address 192.0.2.2 --disable-usage-stats --block"
    assert words(machine, "ray") == expected.split()
    variables = environment(machine, "ray")
    assert variables["RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"] == "1"
    assert variables["VLLM_HOST_IP"] == "192.0.2.2"
    assert not (tmp_path / "vllm.words").exists()


texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)


@settings(max_examples=12, deadline=None)
@given(text=texts, name=texts.filter(bool), value=texts)
def test_any_text_of_a_plan_reaches_the_engine_unchanged(
    tmp_path_factory: pytest.TempPathFactory, text: str, name: str, value: str
) -> None:
    root = tmp_path_factory.mktemp("machine")
    plan = single_node()
    flags = {"served-model-name": [text, "b"], "additional-config": {name: [value, {value: None}]}}
    changed = with_role(plan, flags=flags, env={"SOME_VARIABLE": value})
    changed = msgspec.structs.replace(changed, model=f"{text}\n{value}", weights=name)
    machine = Machine(root, changed, RenderOptions())
    record(machine, "vllm")
    result = machine.run("nodes/server-0/serve.sh")
    assert result.returncode == 0, result.stderr
    given_words = words(machine)
    assert given_words[2:5] == ["--served-model-name", text, "b"]
    assert json.loads(given_words[6]) == {name: [value, {value: None}]}
    assert environment(machine)["SOME_VARIABLE"] == value


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=30,
    )
)
def test_json_for_people_is_the_same_json(value: Any) -> None:
    assert json.loads(json_text(value, "  ", 20)) == value


def test_long_json_has_a_key_a_line() -> None:
    value = {"a": 1, "sizes": list(range(40)), "inner": {"b": "c"}}
    lines = json_text(value).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith('  "sizes": [0, 1, ')


def test_a_variable_that_the_plan_sets_itself_stays(tmp_path: Path) -> None:
    plan = two_nodes()
    nodes = tuple(
        msgspec.structs.replace(node, env={**node.env, "VLLM_HOST_IP": "198.51.100.7"}) for node in plan.nodes
    )
    machine = Machine(tmp_path, msgspec.structs.replace(plan, nodes=nodes))
    machine.edit(**ADDRESSES)
    record(machine, "vllm")
    assert machine.run("nodes/server-1/serve.sh").returncode == 0
    assert environment(machine)["VLLM_HOST_IP"] == "198.51.100.7"
