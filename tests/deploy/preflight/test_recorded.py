"""Recordings of whole hosts, checked through the command line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from qanat.cli.main import main
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.preflight.checks import run_checks
from qanat.deploy.preflight.container import LIBRARY_PROGRAM, PACKAGES, VERSIONS_PROGRAM
from qanat.deploy.preflight.host import Output
from qanat.deploy.preflight.recording import RecordedHost, Recording, decode_recording
from qanat.deploy.preflight.result import Result, Status
from qanat.deploy.preflight.target import Target, target_of
from qanat.deploy.rendered.inputs import with_edits
from tests.deploy.plan.example_plans import disaggregated, single_node, two_nodes
from tests.deploy.preflight.folders import quantised

RECORDED = Path(__file__).parent / "recorded"
EDITS = {
    "ADDRESS_SERVER_0": "192.0.2.11",
    "ADDRESS_SERVER_1": "192.0.2.12",
    "INTERFACE_SERVER_0": "eth0",
    "INTERFACE_SERVER_1": "eth0",
}


def recording(case: str) -> Recording:
    path = RECORDED / case / "host.yaml"
    return decode_recording(path.read_text(encoding="utf-8"), str(path))


def checked(case: str, plan: Plan | None, tmp_path: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of a recording."""
    words = list(flags)
    if plan is not None:
        (tmp_path / "plan.yaml").write_text(encode_plan(plan), encoding="utf-8")
        words = [str(tmp_path / "plan.yaml"), *words]
    report = tmp_path / "report.json"
    with report.open("w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        code = main(["deploy", "preflight", *words, "--replay", str(RECORDED / case), "--json"])
    return code, json.loads(report.read_text(encoding="utf-8"))


def of_status(report: dict[str, Any], status: Status) -> set[str]:
    return {result["check"] for result in report["results"] if result["status"] == status.value}


def seen(report: dict[str, Any], check: str) -> str:
    return "\n".join(result["seen"] for result in report["results"] if result["check"] == check)


def small_plan() -> Plan:
    """The plan for one A3 node, of a model whose folder the tests write."""
    plan = msgspec.structs.replace(single_node(), model="Qwen3.5-35B-A3B")
    return plan


def test_a_host_that_is_ready(tmp_path: Path) -> None:
    model = quantised(tmp_path / "model")
    code, report = checked("a3_ready", small_plan(), tmp_path, "--model-path", str(model))
    assert code == 0 and report["is_ready"] and report["node"] == "server-0"
    assert not of_status(report, Status.FAIL) and not of_status(report, Status.WARN)
    assert not of_status(report, Status.UNKNOWN)
    assert "16 NPUs on 8 cards (Ascend910)" in seen(report, "npus-found")
    assert "driver 26.0.rc1 serves CANN 9.1.0" in seen(report, "driver-cann")


def test_a_host_with_every_fault(tmp_path: Path) -> None:
    code, report = checked("a3_faults", single_node(), tmp_path)
    assert code == 1 and not report["is_ready"]
    assert of_status(report, Status.FAIL) == {
        "npu-health",
        "npu-processes",
        "npu-memory",
        "npu-firmware",
        "device-nodes",
        "mounts",
        "container-engine",
        "ports-free",
        "npu-tls",
        "model-files",
        "service-links",
    }
    warned = {"driver-version", "driver-streams", "host-name", "ports-ephemeral", "npu-link", "npu-address"}
    warned |= {
        "npu-net-health",
        "memory",
        "huge-pages",
        "transparent-huge-pages",
        "shared-memory",
        "cpu-count",
    }
    warned |= {"cpu-governor", "irqbalance", "kernel-settings", "limits", "disk-space", "clock", "npu-health"}
    warned |= {"npu-firmware", "mounts", "service-links"}
    assert of_status(report, Status.WARN) == warned
    assert "NPU 7 (card 3, chip 1) reports Alarm" in seen(report, "npu-health")
    assert "NPU 4: process 124528 (VLLM::Worker_TP) holds 58010 MiB" in seen(report, "npu-processes")
    assert "NPU 4: 4302 MiB of 65536 are free, the start needs 56180" in seen(report, "npu-memory")
    assert "/dev/davinci15" in seen(report, "device-nodes")
    assert "python3, process 124001" in seen(report, "ports-free")
    assert "500000, should be at most 50000" in seen(report, "kernel-settings")
    for result in report["results"]:
        is_bad = result["status"] in ("warn", "fail")
        assert bool(result["why"] and result["fix"] and result["source"]) is is_bad, result


def test_ops_004_service_links_are_told_by_name(tmp_path: Path) -> None:
    _, report = checked("a3_faults", None, tmp_path)
    told = {
        result["seen"].split("=")[0]: result
        for result in report["results"]
        if result["check"] == "service-links"
    }
    assert {name: result["status"] for name, result in told.items()} == {
        "VLLM_PORT": "fail",
        "VLLM_PORT_8000_TCP": "warn",
    }
    assert "enableServiceLinks" in told["VLLM_PORT"]["fix"]


def test_the_second_node_of_a_group_is_found_by_its_address(tmp_path: Path) -> None:
    code, report = checked("a2_node", with_edits(two_nodes(), EDITS), tmp_path)
    assert report["node"] == "server-1"
    assert not of_status(report, Status.FAIL) and code == 0
    assert of_status(report, Status.WARN) == {"driver-streams"}  # 25.5.1 beside CANN 9.1
    assert "eth0 is up with 192.0.2.12" in seen(report, "interface")
    assert "chrony" in seen(report, "clock")
    assert "is downloaded by the engine" in seen(report, "model-files")


def test_links_matter_once_there_are_several_nodes(tmp_path: Path) -> None:
    _, report = checked("a3_faults", disaggregated(), tmp_path, "--node", "prefill-0")
    assert {"npu-link", "npu-address", "npu-net-health"} <= of_status(report, Status.FAIL)
    assert "/etc/hccn.conf" in seen(report, "mounts")
    assert {"mounts"} <= of_status(report, Status.FAIL)


def test_another_chip_than_planned(tmp_path: Path) -> None:
    _, report = checked("a2_node", single_node(), tmp_path)
    assert "npu-smi shows 910B3 (A2), the plan is for A3" in seen(report, "npu-chip")
    assert "missing: 8-15; npu-smi shows 8" in seen(report, "npu-count")
    assert {"npu-chip", "npu-count"} <= of_status(report, Status.FAIL)


def test_another_chip_than_the_image_is_for(tmp_path: Path) -> None:
    code, report = checked("a2_node", None, tmp_path, "--image", "v0.18.0-a3")
    assert code == 1 and "the image is for A3" in seen(report, "npu-chip")
    code, report = checked("a2_node", None, tmp_path, "--image", "v0.18.0")
    assert code == 0 and "910B3 fits A2" in seen(report, "npu-chip")
    assert "driver 25.5.1 serves CANN 8.5.1" in seen(report, "driver-cann")


def test_an_old_driver_for_the_image(tmp_path: Path) -> None:
    _, report = checked("a3_faults", None, tmp_path, "--image", "v0.30.0rc1-a3")
    assert "driver 25.2.1 is older than 25.3.rc1, the oldest for CANN 9.2.0" in seen(report, "driver-cann")
    assert "driver-cann" in of_status(report, Status.FAIL)


def test_a_driver_of_which_little_is_known_is_a_warning(tmp_path: Path) -> None:
    host = recording("a3_faults")
    text = host.commands["npu-smi info"].text.replace("25.2.1", "24.1.rc3")
    host.commands["npu-smi info"] = Output(text=text)
    results = run_checks(RecordedHost(host), target_of(None, image="v0.11.0-a3"))
    found = [each for each in results if each.check == "driver-cann"]
    assert [each.status for each in found] == [Status.WARN]


def test_a_310p(tmp_path: Path) -> None:
    code, report = checked("310p", None, tmp_path, "--image", "v0.23.0-310p")
    assert code == 0 and "310P3 fits 310P" in seen(report, "npu-chip")
    assert "hccn_tool is for A2 and A3" in seen(report, "npu-link")
    assert "at least 42282 MiB are free" in seen(report, "npu-memory")


def test_a_950(tmp_path: Path) -> None:
    code, report = checked("950", None, tmp_path, "--image", "v0.23.0-950dt")
    assert code == 1 and of_status(report, Status.FAIL) >= {"npu-health", "npu-processes"}
    assert "NPU 1: process 4711 (VLLM::EngineCore) holds 88020 MiB" in seen(report, "npu-processes")
    assert "numbered apart" in seen(report, "driver-cann")
    assert "/dev/uburma" in seen(report, "device-nodes")


def test_a_driver_that_answers_with_an_error(tmp_path: Path) -> None:
    code, report = checked("broken_driver", None, tmp_path)
    assert code == 1 and "DrvMngGetConsoleLogLevel failed" in seen(report, "npus-found")


def test_a_driver_that_hangs() -> None:
    host = recording("a3_ready")
    host.commands["npu-smi info"] = Output(exit_code=127, problem="timed out")
    found = {each.check: each for each in run_checks(RecordedHost(host), Target())}
    assert found["npus-found"].status is Status.FAIL and "does not answer" in found["npus-found"].seen


def test_devices_without_the_tool() -> None:
    host = recording("a3_ready")
    del host.commands["npu-smi info"]
    found = {each.check: each for each in run_checks(RecordedHost(host), Target())}
    assert found["npus-found"].status is Status.FAIL and "16 devices" in found["npus-found"].seen


def test_inside_the_image() -> None:
    host = recording("a3_ready")
    target = target_of(None, image="v0.23.0-a3", is_in_container=True)
    before = {
        each.check: each for each in run_checks(RecordedHost(host), target) if each.status is Status.FAIL
    }
    assert {"cann-version", "package-versions", "package-imports"} == set(before)
    versions = {
        "torch": "2.10.0",
        "torch-npu": "2.10.0.post4",
        "vllm": "0.23.0+empty",
        "vllm-ascend": "0.23.0",
    }
    host.commands[f"python3 -c {VERSIONS_PROGRAM}"] = Output(text=f"a warning\n{json.dumps(versions)}\n")
    for program in (*(f"import {name}" for name in PACKAGES), LIBRARY_PROGRAM):
        host.commands[f"python3 -c {program}"] = Output()
    host.files["/usr/local/Ascend/ascend-toolkit/latest/runtime/version.info"] = "Version=9.1.0\n"
    host.variables["LD_PRELOAD"] = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"
    host.paths.append("/usr/lib/aarch64-linux-gnu/libjemalloc.so.2")
    results = run_checks(RecordedHost(host), target)
    assert not [each for each in results if each.status in (Status.FAIL, Status.WARN)]
    assert not [each for each in results if each.check == "container-engine"]

    versions |= {"vllm": "0.22.1", "torch-npu": "2.9.0"}
    host.commands[f"python3 -c {VERSIONS_PROGRAM}"] = Output(text=json.dumps(versions))
    missing = "ImportError: libatb.so: cannot open shared object file: No such file or directory"
    host.commands[f"python3 -c {LIBRARY_PROGRAM}"] = Output(exit_code=1, text=f"Traceback:\n{missing}\n")
    host.files["/usr/local/Ascend/ascend-toolkit/latest/runtime/version.info"] = "Version=8.5.1\n"
    host.paths.remove("/usr/lib/aarch64-linux-gnu/libjemalloc.so.2")
    results = run_checks(RecordedHost(host), target)
    told = "\n".join(each.seen for each in results if each.status in (Status.FAIL, Status.WARN))
    assert "vllm 0.22.1, release 0.23.0 has 0.23.0" in told and "torch-npu 2.9.0" in told
    assert missing in told and "CANN 8.5.1" in told and "which does not exist" in told


@pytest.mark.parametrize("case", sorted(path.name for path in RECORDED.iterdir()))
@pytest.mark.parametrize(
    "build",
    [None, single_node, two_nodes, disaggregated],
    ids=lambda build: getattr(build, "__name__", "no plan"),
)
def test_no_check_fails_itself(case: str, build: Any) -> None:
    plan = build() if build else None
    targets = [target_of(plan, node.name) for node in plan.nodes] if plan else [Target()]
    for target in targets:
        results: tuple[Result, ...] = run_checks(RecordedHost(recording(case)), target)
        assert not [each for each in results if "failed itself" in each.seen]


def test_a_check_that_fails_itself_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    host = RecordedHost(recording("a3_ready"))
    monkeypatch.setattr(host, "resolve", None)
    results = run_checks(host, Target())
    found = [each for each in results if "failed itself" in each.seen]
    assert [each.check for each in found] == ["host-name"] and len(results) > 20


def test_an_engine_from_source_needs_cann_on_the_host_and_no_containers() -> None:
    host = recording("a3_ready")
    host.commands["docker info --format {{json .Runtimes}}"] = Output(exit_code=1, text="no daemon\n")
    target = target_of(single_node(), is_from_source=True)
    found = {each.check: each for each in run_checks(RecordedHost(host), target)}
    assert "container-engine" not in found and found["cann-version"].status is Status.FAIL
    host.files["/usr/local/Ascend/ascend-toolkit/latest/runtime/version.info"] = "Version=9.1.0\n"
    found = {each.check: each for each in run_checks(RecordedHost(host), target)}
    assert found["cann-version"].status is Status.OK
