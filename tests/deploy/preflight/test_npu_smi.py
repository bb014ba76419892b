from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.preflight.known import chip_named, driver_order
from qanat.deploy.preflight.npu_smi import (
    NpuProcess,
    read_fields,
    read_info,
    read_link,
    read_net_health,
    read_npu_address,
    read_tls,
    read_version_info,
)
from qanat.deploy.preflight.recording import decode_recording

RECORDED = Path(__file__).parent / "recorded"


def info(case: str) -> str:
    path = RECORDED / case / "host.yaml"
    return decode_recording(path.read_text(encoding="utf-8"), str(path)).commands["npu-smi info"].text


def test_an_a3_has_two_chips_a_card_and_numbers_of_their_own() -> None:
    table = read_info(info("a3_faults"))
    assert table.driver == "25.2.1" and len(table.chips) == 16
    assert [chip.physical for chip in table.chips] == list(range(16))
    chip = table.chips[7]
    assert (chip.npu, chip.chip, chip.name, chip.health, chip.bus) == (
        3,
        1,
        "Ascend910",
        "Alarm",
        "0000:93:00.0",
    )
    assert (table.chips[4].used_mib, table.chips[4].total_mib) == (61234, 65536)
    assert table.processes == (NpuProcess(2, 0, 124528, "VLLM::Worker_TP", 58010),)


def test_an_a2_has_one_chip_a_card_and_no_column_for_its_number() -> None:
    table = read_info(info("a2_node"))
    assert [(chip.npu, chip.chip, chip.physical) for chip in table.chips] == [(n, 0, n) for n in range(8)]
    assert {chip.name for chip in table.chips} == {"910B3"} and table.processes == ()


def test_a_card_that_is_missing_keeps_the_numbers_of_the_others() -> None:
    lines = info("a2_node").splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| 1     910B3"))
    table = read_info("\n".join(lines[:begin] + lines[begin + 3 :]))
    assert [chip.physical for chip in table.chips] == [0, 2, 3, 4, 5, 6, 7]


def test_a_310p_shows_memory_of_the_card() -> None:
    first, second = read_info(info("310p")).chips
    assert (first.npu, first.chip, first.physical, first.used_mib, first.total_mib) == (2, 0, 0, 1530, 44280)
    assert (second.npu, second.chip, second.physical) == (2, 1, 1)


def test_a_950_has_no_chip_column() -> None:
    table = read_info(info("950"))
    assert [(chip.physical, chip.name, chip.health) for chip in table.chips] == [
        (0, "Ascend950DT", "OK"),
        (1, "Ascend950DT", "Alarm"),
    ]
    assert table.chips[1].free_mib == 98304 - 90633
    assert table.processes == (NpuProcess(1, 0, 4711, "VLLM::EngineCore", 88020),)


def test_a_broken_driver_shows_nothing() -> None:
    table = read_info(info("broken_driver"))
    assert table.chips == () and table.driver == ""


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    read_info(text)
    read_fields(text)
    read_version_info(text)
    read_tls(text)


@given(st.lists(st.sampled_from(info("a3_faults").splitlines()), max_size=60))
def test_lines_of_a_table_in_any_order_are_read(lines: list[str]) -> None:
    for chip in read_info("\n".join(lines)).chips:
        assert chip.total_mib >= 0 and chip.name


def test_hccn_tool() -> None:
    assert read_link("link status: UP\n") == "UP" and read_link("Cmd os command exec failed") == ""
    assert read_net_health("net health status: Receive timeout\n") == "Receive timeout"
    assert read_npu_address("ipaddr:29.1.112.213\nnetmask:255.255.0.0\n") == "29.1.112.213"
    assert read_tls("dev_id:0, tls switch[1](0:disable, 1:enable), tls alarm time threshold[60]days") == "1"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Version=24.1.rc1\nascendhal_version=7.35.19\n", "24.1.rc1"),
        ("Version=7.35.23\npackage_version=26.0.rc1\n", "26.0.rc1"),
        ("package_name=Ascend-cann-toolkit\nversion=8.5.1\n", "8.5.1"),
        ("", ""),
    ],
)
def test_version_files(text: str, version: str) -> None:
    assert read_version_info(text) == version


def test_drivers_are_in_order() -> None:
    versions = [
        "24.1.rc3.7",
        "24.1.0",
        "25.0.rc1",
        "25.0.rc1.1",
        "25.2.0",
        "25.2.1",
        "25.3.rc1",
        "25.5.0",
        "26.0.rc1",
    ]
    orders = [driver_order(version) for version in versions]
    assert None not in orders and orders == sorted(orders, key=lambda order: order or ())
    assert driver_order("V100R001C21") is None


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("910B3", "A2"),
        ("910B4-1", "A2"),
        ("910B2C", "A2"),
        ("Ascend910", "A3"),
        ("Ascend910_9391", "A3"),
        ("310P3", "310P"),
        ("Ascend950DT", "950DT"),
        ("Ascend950PR", "950DT"),
    ],
)
def test_names_of_chips(name: str, chip: str) -> None:
    found = chip_named(name)
    assert found is not None and found.name == chip
    assert chip_named("H200") is None
