"""Every entry about hosts does something, and stands on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.preflight import known
from qanat.deploy.preflight.checks import run_checks
from qanat.deploy.preflight.docs import main, render
from qanat.deploy.preflight.host import Output
from qanat.deploy.preflight.machine import check_kernel
from qanat.deploy.preflight.recording import RecordedHost, Recording
from qanat.deploy.preflight.result import Status
from qanat.deploy.preflight.target import Target, target_of

ROOT = Path(__file__).parents[3]
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "src/qanat/deploy/preflight").glob("*.py")
)
KNOWLEDGE = load_knowledge()


def test_every_check_is_made_and_none_is_made_up() -> None:
    made = set(re.findall(r'(?:good|warning|failure|unknown|report|_told|_told_of)\(\s*"([a-z-]+)"', SOURCES))
    assert made == set(known.checks())


def test_every_number_is_compared_with() -> None:
    used = set(re.findall(r'threshold\("([a-z-]+)"\)', SOURCES))
    assert used == set(KNOWLEDGE.tables["host_thresholds"].entries)


@pytest.mark.parametrize("name", list(known.settings()))
def test_every_kernel_setting_is_read_from_each_of_its_files(name: str) -> None:
    setting = known.settings()[name]
    for path in setting.paths:
        for value, status in ((setting.value, Status.OK), (setting.value + 1000, Status.WARN)):
            host = RecordedHost(Recording(files={path: f"{value}\n"}))
            found = [each for each in check_kernel(host, Target()) if each.seen.startswith(f"{name} is")]
            assert [each.status for each in found] == [status]


def with_driver(version: str, image: str) -> dict[str, Status]:
    files = {"/usr/local/Ascend/driver/version.info": f"Version={version}\n"}
    results = run_checks(RecordedHost(Recording(files=files)), target_of(None, image=image))
    return {each.check: each.status for each in results}


@pytest.mark.parametrize("name", list(KNOWLEDGE.tables["drivers"].entries))
def test_every_driver_decides_something(name: str) -> None:
    support = KNOWLEDGE.tables["drivers"].entries[name]
    release = next(each for each in KNOWLEDGE.releases if (each.cann or "").startswith(f"{name}."))
    image = f"v{release.name}"
    assert with_driver(support.recommended, image)["driver-streams"] is Status.OK
    assert with_driver(support.oldest, image)["driver-cann"] is Status.OK
    is_sure = support.confidence != "unverified"
    assert with_driver("23.0.0", image)["driver-cann"] is (Status.FAIL if is_sure else Status.WARN)
    assert set(support.chips) <= {chip.name for chip in KNOWLEDGE.chips}


def test_every_release_has_drivers() -> None:
    for release in KNOWLEDGE.releases:
        assert release.cann and known.drivers(release.cann) is not None, release.name


def test_every_name_of_a_chip_leads_to_one() -> None:
    for entry in KNOWLEDGE.tables["device_names"].entries.values():
        assert entry.chip in {chip.name for chip in KNOWLEDGE.chips}
    examples = {"910B3": "A2", "Ascend910": "A3", "310P3": "310P", "Ascend950DT": "950DT"}
    assert len(examples) == len(KNOWLEDGE.tables["device_names"].entries)
    for name, chip in examples.items():
        found = known.chip_named(name)
        assert found is not None and found.name == chip


def test_the_page_is_current_and_names_every_entry() -> None:
    assert main(["--check", str(ROOT / "docs/reference/deploy-checks.md")]) == 0
    page = render().replace("\\", "")
    for table in (
        "host_checks",
        "host_settings",
        "host_thresholds",
        "drivers",
        "device_names",
        "quantised_types",
    ):
        for name in KNOWLEDGE.tables[table].entries:
            assert name.replace("\\", "") in page, name


def test_the_page_of_the_user_names_no_check_that_there_is_not() -> None:
    page = (ROOT / "docs/deploy-preflight.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\[([a-z]+(?:-[a-z]+)*)\]$", page, re.MULTILINE))
    assert told and told <= set(known.checks())


def test_runtimes_of_docker_are_read() -> None:
    command = "docker info --format {{json .Runtimes}}"
    host = RecordedHost(Recording(commands={command: Output(text='{"ascend":{},"runc":{}}')}))
    found = {each.check: each for each in run_checks(host, Target())}
    assert found["container-runtime"].status is Status.OK
