from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.plan.example_plans import single_node, two_nodes
from tests.deploy.render.machine import Machine

SCRIPT = "nodes/server-0/host.sh"
IMAGE = "quay.io/ascend/vllm-ascend:v0.23.0-a3"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, single_node())


def set_kernel(machine: Machine, **values: str) -> None:
    for name, value in values.items():
        (machine.settings / name.replace("__", ".")).write_text(value + "\n")


def kernel(machine: Machine, name: str) -> str:
    return (machine.settings / name).read_text().strip()


def test_settings_are_made_once(machine: Machine) -> None:
    set_kernel(
        machine, vm__swappiness="60", kernel__numa_balancing="1", kernel__sched_migration_cost_ns="500000"
    )
    governor = machine.cpus / "cpu0" / "cpufreq" / "scaling_governor"
    governor.parent.mkdir(parents=True)
    governor.write_text("powersave\n")
    result = machine.run(SCRIPT)
    assert result.returncode == 0, result.stderr
    assert "kernel.numa_balancing was 1 and is 0 now" in result.stdout
    assert kernel(machine, "kernel.numa_balancing") == "0"
    assert int(kernel(machine, "vm.swappiness")) <= 10
    assert int(kernel(machine, "kernel.sched_migration_cost_ns")) <= 50000
    assert governor.read_text().strip() == "performance"
    assert machine.docker["images"] == [IMAGE]
    files = [*machine.settings.iterdir(), governor]
    before = {path: path.stat().st_mtime_ns for path in files}
    again = machine.run(SCRIPT)
    assert again.returncode == 0
    assert " now" not in again.stdout
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert len(machine.calls("pull")) == 1


def test_a_value_that_is_good_enough_stays(machine: Machine) -> None:
    set_kernel(machine, vm__swappiness="0")
    assert machine.run(SCRIPT).returncode == 0
    assert kernel(machine, "vm.swappiness") == "0"


def test_a_setting_that_this_kernel_lacks_is_told(machine: Machine) -> None:
    result = machine.run(SCRIPT)
    assert result.returncode == 0
    assert "kernel.sched_migration_cost_ns is not among the settings" in result.stdout


def test_newer_kernels_keep_the_migration_cost_elsewhere(machine: Machine) -> None:
    place = machine.root / "migration_cost_ns"
    place.write_text("500000\n")
    script = machine.folder / SCRIPT
    script.write_text(script.read_text().replace("/sys/kernel/debug/sched/migration_cost_ns", str(place)))
    result = machine.run(SCRIPT)
    assert result.returncode == 0
    assert int(place.read_text()) <= 50000
    assert f"{place} was 500000" in result.stdout


def test_what_cannot_be_set_is_told_and_counted(machine: Machine) -> None:
    set_kernel(machine, vm__swappiness="60", kernel__numa_balancing="1", refuses="")
    result = machine.run(SCRIPT)
    assert result.returncode == 3
    assert "cannot set vm.swappiness, which is 60" in result.stderr
    assert "2 settings could not be made" in result.stderr
    assert machine.docker["images"] == [IMAGE]


def test_weights_that_are_missing_end_it(machine: Machine) -> None:
    machine.edit(MODEL_PATH="/no/such/folder")
    result = machine.run(SCRIPT)
    assert result.returncode == 1
    assert "the folder /no/such/folder with weights is not on this host" in result.stderr


def test_an_image_that_cannot_be_fetched_ends_it(machine: Machine) -> None:
    machine.set_docker(is_registry_down=True)
    result = machine.run(SCRIPT)
    assert result.returncode == 1
    assert "no route to the registry" in result.stderr


def test_a_repository_needs_no_folder(tmp_path: Path) -> None:
    machine = Machine(tmp_path, two_nodes())
    assert machine.run("nodes/server-1/host.sh").returncode == 0


def test_irqbalance_is_told_and_left(machine: Machine) -> None:
    machine.program("systemctl", '[[ "$*" == "is-active --quiet irqbalance" ]]')
    result = machine.run(SCRIPT)
    assert result.returncode == 0
    assert "systemctl stop irqbalance ends it" in result.stdout
    machine.program("systemctl", "echo no systemd here >&2; exit 1")
    result = machine.run(SCRIPT)
    assert "irqbalance" not in result.stdout and result.stderr == ""
