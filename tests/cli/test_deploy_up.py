from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qanat.cli.main import main
from qanat.deploy.diagnose.stages import WORDS
from qanat.deploy.plan.model import Plan
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.render.names import container_name
from tests.deploy.up.machine import RunningMachine, a_group, one_node, read_until, with_proxy

QUICK = ("--skip-preflight", "--skip-verify")
RUNS = "it runs; Ctrl-C stops it"
Make = Callable[..., RunningMachine]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes machines; afterwards nothing of them may run, whatever the test did."""
    made: list[RunningMachine] = []

    def build(
        plan: Plan | None = None, options: RenderOptions | None = None, **scenario: str
    ) -> RunningMachine:
        root = tmp_path / str(len(made))
        root.mkdir()
        made.append(RunningMachine(root, plan or one_node(), options, **scenario))
        return made[-1]

    yield build
    for machine in made:
        machine.__exit__()


def nothing_left(machine: RunningMachine) -> bool:
    return machine.pids() == [] and machine.containers() == []


def in_order(output: str, *texts: str) -> bool:
    places = [output.find(text) for text in texts]
    return -1 not in places and places == sorted(places)


def test_it_starts_tells_the_stages_verifies_and_leaves_it_running(make: Make) -> None:
    machine = make()
    code, output = machine.up("--skip-preflight", "--detach")
    assert code == 0, output
    stages = [WORDS[stage] for stage in ("start", "connect", "load", "cache", "capture", "ready")]
    assert in_order(
        output, "server-0: started", *stages, "server-0: ready after", "ok      completion", "27 checks: "
    )
    assert len(machine.pids()) == 1

    code, output = machine.up("--skip-preflight")
    assert (code, "server-0: running already and healthy" in output) == (0, True)
    assert "stages" not in output and len(machine.pids()) == 1

    machine.machine.edit(SHM_SIZE="1g")
    code, output = machine.up("--skip-preflight")
    assert code == 1 and "other settings" in output
    assert len(machine.pids()) == 1  # what ran before is not stopped

    code, output = machine.up("--stop")
    assert (code, "stopped and removed" in output) == (0, True)
    assert nothing_left(machine)
    assert machine.up("--stop")[0] == 0


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGTERM, signal.SIGHUP))],
)
def test_a_signal_stops_what_runs(make: Make, number: signal.Signals) -> None:
    machine = make()
    process = machine.begin(*QUICK)
    read_until(process, RUNS)
    assert len(machine.pids()) == 1
    process.send_signal(number)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert "stopped and removed" in output and "Traceback" not in output
    assert nothing_left(machine)


@pytest.mark.slow
def test_a_signal_that_is_ignored_stays_so(make: Make) -> None:
    """As a shell has it behind `&`: what was sent to the terminal is not meant for it."""
    machine = make()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = machine.begin(*QUICK)
    finally:
        signal.signal(signal.SIGINT, before)
    read_until(process, RUNS)
    status = Path(f"/proc/{process.pid}/status").read_text()
    pairs = dict(line.split(":\t", 1) for line in status.splitlines())
    masks = {name: int(pairs[name], 16) for name in ("SigIgn", "SigCgt")}
    bits = {number: 1 << number - 1 for number in (signal.SIGINT, signal.SIGTERM)}
    assert masks["SigIgn"] & bits[signal.SIGINT] and masks["SigCgt"] & bits[signal.SIGTERM]
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert nothing_left(machine)


@pytest.mark.parametrize(
    ("stage", "signature"),
    [("load", "out of memory"), pytest.param("capture", "TASK_QUEUE_ENABLE", marks=pytest.mark.slow)],
)
def test_a_start_that_dies_is_explained_and_stopped(make: Make, stage: str, signature: str) -> None:
    machine = make(end_at=stage, how="die")
    code, output = machine.up(*QUICK)
    assert code == 1
    assert f"it ended before it was ready; the last stage was: {WORDS[stage]}" in output  # type: ignore[index]
    end, _, diagnosis = output.partition("the end of its log:")[2].partition("bytes\n")
    assert signature in end and "vLLM API server version" in end
    assert signature in diagnosis and in_order(diagnosis, "First fault", "cause: ", "remedy: "), output
    assert nothing_left(machine)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["start", "connect", "cache", "ready"])
def test_a_start_that_dies_at_any_other_stage_leaves_nothing(make: Make, stage: str) -> None:
    machine = make(end_at=stage, how="die")
    code, output = machine.up(*QUICK)
    assert code == 1 and f"the last stage was: {WORDS[stage]}" in output, output  # type: ignore[index]
    assert nothing_left(machine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "said"),
    [(("--stall-s", "10"), "its log stands still for 10 s"), (("--timeout-s", "20"), "not ready after 20 s")],
)
def test_a_start_that_hangs_is_ended(make: Make, flags: tuple[str, ...], said: str) -> None:
    machine = make(end_at="load", how="hang")
    code, output = machine.up(*QUICK, *flags)
    assert code == 1 and f"{said}; the last stage was: {WORDS['load']}" in output, output
    assert nothing_left(machine)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_start_stops_it(make: Make, number: signal.Signals, code: int) -> None:
    machine = make(end_at="load", how="hang")
    process = machine.begin(*QUICK)
    read_until(process, WORDS["load"])
    process.send_signal(number)
    read_until(process, "stopping what was started")
    process.send_signal(number)  # an impatient person
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    assert nothing_left(machine)


@pytest.mark.slow
def test_an_engine_that_ends_later_is_told(make: Make) -> None:
    machine = make()
    process = machine.begin(*QUICK)
    read_until(process, RUNS)
    (group,) = machine.pids()
    os.killpg(group, signal.SIGKILL)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1 and "server-0: it ended" in output
    assert nothing_left(machine)


@pytest.mark.slow
def test_a_service_that_fails_its_verification_is_stopped_unless_kept(make: Make) -> None:
    machine = make(name="another")
    code, output = machine.up("--skip-preflight", "--detach")
    assert code == 1 and "it serves another, not qwen3.5" in output and "the verification failed" in output
    assert nothing_left(machine)
    code, _ = machine.up("--skip-preflight", "--detach", "--keep")
    assert code == 1 and len(machine.pids()) == 1


@pytest.mark.slow
def test_a_host_that_fails_the_preflight_starts_nothing(make: Make) -> None:
    machine = make()
    code, output = machine.up()
    assert code == 1 and "This host as server-0" in output and "nothing was started" in output
    assert nothing_left(machine)


@pytest.mark.slow
def test_engines_come_before_the_proxy_and_go_after_it(make: Make) -> None:
    plan = with_proxy()
    machine = make(plan)
    proxy, decode, prefill = (container_name(plan, name) for name in ("proxy", "decode-0", "prefill-0"))
    process = machine.begin("--skip-preflight")
    output = read_until(process, RUNS)
    assert in_order(output, "decode-0: ready", "proxy: started", "proxy: ready after", "27 checks: ")
    assert in_order(output, "prefill-0: ready", "proxy: started")
    assert sorted(machine.containers()) == sorted([decode, prefill, proxy])
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert in_order(output, f"removed {proxy}", f"removed {decode}", f"removed {prefill}")
    assert nothing_left(machine)


@pytest.mark.slow
def test_the_proxy_waits_for_engines_of_other_hosts(make: Make) -> None:
    machine = make(with_proxy())
    code, output = machine.up(*QUICK, "--node", "prefill-0", "--timeout-s", "5")
    assert code == 1, output
    assert "waiting for http://127.0.0.1:" in output and "engines do not answer" in output
    assert "proxy: started" not in output and nothing_left(machine)


@pytest.mark.slow
def test_a_node_that_answers_no_requests_is_ready_with_the_first_of_its_group(make: Make) -> None:
    machine = make(a_group())
    code, output = machine.up("--skip-preflight", "--detach")
    assert code == 0, output
    assert "server-0: ready after" in output and "server-1: ready after" in output
    assert len(machine.pids()) == 2
    assert machine.up("--stop")[0] == 0
    assert nothing_left(machine)


@pytest.mark.slow
def test_an_engine_without_a_container_is_followed_and_stopped(make: Make) -> None:
    """Started as a process of this machine: its number in a file says whether it runs."""
    machine = make(options=RenderOptions(install="source"))
    process = machine.begin(*QUICK)
    output = read_until(process, RUNS)
    assert in_order(output, WORDS["load"], "server-0: ready after")
    (group,) = machine.pids()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and f"stopped process {group}" in output
    assert machine.pids() == []
    assert machine.begin(*QUICK, "--detach").wait(120) == 0
    assert len(machine.pids()) == 1
    assert machine.up("--stop")[0] == 0
    assert machine.pids() == []


@pytest.mark.slow
def test_a_script_that_refuses_is_told(make: Make) -> None:
    machine = make()
    machine.machine.program("docker", "exit 1")
    code, output = machine.up(*QUICK)
    assert (
        code == 1 and "docker does not answer" in output and "container.sh ended with exit code 1" in output
    )


@pytest.mark.slow
def test_what_cannot_be_stopped_is_told(make: Make) -> None:
    machine = make()
    assert machine.up(*QUICK, "--detach")[0] == 0
    (machine.state / "cannot_stop").touch()
    code, output = machine.up("--stop")
    assert code == 1 and "permission denied" in output and "stop.sh ended with exit code 1" in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name the one folder"),
        (["a", "b"], "name the one folder"),
        (["no-such-folder"], "deployment.json cannot be read"),
        (["{folder}", "--node", "server-7"], "there is no node server-7; there are: server-0, server-1"),
        (["{folder}"], "say with --node which one this host is: server-0, server-1"),
        (["{folder}", "--stop", "--detach"], "leave one out"),
        (["{folder}", "--api-key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY is not set"),
        (["{folder}", "--stall-s", "0"], "--stall-s"),
        (["{folder}", "--detatch"], "--detach"),
    ],
)
def test_mistakes_of_the_command_line_are_told(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.deploy.plan.example_plans import two_nodes
    from tests.deploy.render.machine import Machine

    folder = Machine(tmp_path, two_nodes()).folder
    assert main(["deploy", "up", *(argument.replace("{folder}", str(folder)) for argument in arguments)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: (folder / "env.sh").write_text("A='"), "bash cannot read"),
        (lambda folder: (folder / "env.sh").unlink(), "bash cannot read"),
        (
            lambda folder: replace(folder / "env.sh", "READY_TIMEOUT_S=3600", "READY_TIMEOUT_S=soon"),
            "READY_TIMEOUT_S",
        ),
        (
            lambda folder: replace(folder / "env.sh", 'LOG_DIR="$DEPLOYMENT_DIR/logs"', "LOG_DIR=logs"),
            "LOG_DIR",
        ),
        (lambda folder: replace(folder / "deployment.json", '"format": 1', '"format": 7'), "format 7"),
        (
            lambda folder: replace(folder / "env.sh", "READY_TIMEOUT_S=3600", "READY_TIMEOUT_S=0"),
            "at least 1",
        ),
        (lambda folder: (folder / "deployment.json").write_text("[1]"), "render it again"),
        (lambda folder: edit(folder, lambda found: found.update(nodes=[])), "no nodes"),
        (lambda folder: edit(folder, lambda found: found["nodes"][0].update(ready=None)), "when it is ready"),
        (
            lambda folder: edit(folder, lambda found: found["nodes"][0]["scripts"].update(start="../a.sh")),
            "../a.sh lies outside",
        ),
        (lambda folder: (folder / "plan.yaml").write_text("a: 1"), "plan.yaml"),
    ],
)
def test_a_folder_that_was_broken_is_told(
    change: Callable[[Path], object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.deploy.plan.example_plans import single_node
    from tests.deploy.render.machine import Machine

    folder = Machine(tmp_path, single_node()).folder
    change(folder)
    assert main(["deploy", "up", str(folder), "--skip-preflight"]) == 2
    assert said in capsys.readouterr().err


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "deployment.json"
    found = json.loads(file.read_text())
    change(found)
    file.write_text(json.dumps(found))


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_help_is_complete_and_loads_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["deploy", "up", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--node", "--detach", "--stop", "--keep", "--stall-s", "Examples:"))
    code = (
        "import sys; from qanat.cli.main import main; main(['deploy', 'up', '--help']); "
        "sys.exit(bool({'yaml', 'torch', 'rich'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_deployment_json_is_read_as_render_writes_it(tmp_path: Path) -> None:
    from qanat.deploy.up.folder import read_folder
    from tests.deploy.render.machine import Machine

    folder = Machine(tmp_path, with_proxy()).folder
    read = read_folder(str(folder))
    written = json.loads((folder / "deployment.json").read_text())
    assert [node.name for node in read.deployment.nodes] == [node["name"] for node in written["nodes"]]
    assert read.addresses == {"prefill-0": "127.0.0.1", "decode-0": "127.0.0.1"}
    assert read.logs == folder / "logs"
    assert [node.name for node in read.nodes_here((), ())] == ["prefill-0", "decode-0"]
