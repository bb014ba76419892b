from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from qanat.config.processors import Processor, in_binding_order, number_ranges, usable_processors


def write_topology(root: Path, cores: dict[int, tuple[int, int]]) -> None:
    """Files of /sys for processors by number: (package, core)."""
    for number, (package, core) in cores.items():
        folder = root / f"sys/devices/system/cpu/cpu{number}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{package}\n")
        (folder / "core_id").write_text(f"{core}\n")


def test_second_threads_of_cores_come_last(tmp_path: Path) -> None:
    write_topology(tmp_path, {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (0, 0), 4: (0, 1), 5: (1, 0)})
    processors = usable_processors(tmp_path, frozenset(range(6)))
    assert in_binding_order(processors) == [0, 1, 2, 3, 4, 5]
    assert in_binding_order(usable_processors(tmp_path, frozenset({0, 3, 1}))) == [0, 1, 3]


def test_without_a_topology_each_processor_is_a_core(tmp_path: Path) -> None:
    assert len({each.core for each in usable_processors(tmp_path, frozenset({4, 7}))}) == 2


@given(st.lists(st.integers(0, 5), max_size=12))
def test_the_order_has_every_processor_once_and_cores_before_their_second_threads(cores: list[int]) -> None:
    processors = [Processor(number, str(core)) for number, core in enumerate(cores)]
    order = in_binding_order(processors)
    assert sorted(order) == list(range(len(cores)))
    assert len({cores[number] for number in order[: len(set(cores))]}) == len(set(cores))


@given(st.frozensets(st.integers(0, 40)))
def test_ranges_say_the_same_numbers(numbers: frozenset[int]) -> None:
    read = set()
    for part in filter(None, number_ranges(numbers).split(",")):
        first, _, last = part.partition("-")
        read |= set(range(int(first), int(last or first) + 1))
    assert read == numbers
