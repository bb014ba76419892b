"""What chips ask for that run only a part of what larger ones do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.kinds.practices import Circumstances, Practice
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import ADDITIONAL, COMPILATION, LaunchView

PRACTICES = ("practices_sizes", "practices_switches")
COMPRESSED = "w8a8sc"
HALF = {"half": "float16"}
"""Other names of types."""
GRAPH_EXTENSION = ("ascend_compilation_config", "enable_npugraph_ex")


def asked(view: LaunchView, what: str) -> Practice | None:
    """The practice of the chip of a server for something; None if its chip asks for nothing."""
    for table in PRACTICES:
        for practice in view.knowledge.tables[table].entries.values():
            assert isinstance(practice, Practice)
            if practice.what == what and practice.when.chips and _holds(practice.when, view):
                return practice
    return None


def _holds(when: Circumstances, view: LaunchView) -> bool:
    chip, model = view.chip, view.model
    if chip is None or model is None or not {chip.name, chip.family} & set(when.chips):
        return False
    if when.roles or when.topologies or when.scenarios:
        return False
    if when.models and model.name not in when.models:
        return False
    if when.attention is not None and (when.attention == "hybrid") is not model.is_hybrid:
        return False
    return when.is_tensor_parallel is None or when.is_tensor_parallel is (view.tp > 1)


@on_server("NPU001", "NPU006")
def types(view: LaunchView) -> Iterator[Hit]:
    """Types of weights and states."""
    for rule_id, flag in (("NPU001", "--dtype"), ("NPU006", "--mamba-ssm-cache-dtype")):
        practice, stated = asked(view, flag), view.text(flag)
        if practice is None or (stated is None and view.get(flag) is not None):
            continue
        if HALF.get(stated or "", stated) != practice.value:
            told = f"{flag} is {stated}" if stated else f"{flag} is not given"
            yield Hit(rule_id, view.place(flag), f"{told}; {practice.reason}", f"{flag} {practice.value}")


@on_server("NPU008")
def half_precision(view: LaunchView) -> Iterator[Hit]:
    """int8 weights with a type that their products on larger chips do not take."""
    name, stated = (view.model_name or "").lower(), view.text("--dtype")
    is_int8 = "w8a8" in name and COMPRESSED not in name
    if is_int8 and HALF.get(stated or "", stated) == "float16" and view.chip is not None:
        if view.chip.family in ("A2", "A3"):
            yield Hit("NPU008", view.place("--dtype"), f"--dtype is {stated} for {view.model_name}")


@on_server("NPU002", "NPU005")
def compressed(view: LaunchView) -> Iterator[Hit]:
    """Compressed weights: their loader, and the ranks that they are cut for."""
    name = (view.model_name or "").rstrip("/").lower()
    if COMPRESSED not in name:
        return
    stated = view.text("--load-format")
    if stated != "sharded_state" and (stated is not None or view.get("--load-format") is None):
        yield Hit("NPU002", view.place("--load-format"), f"{view.model_name} is stored rank by rank")
    cut = re.search(r"[-_]tp(\d+)$", name)
    is_known = (
        view.get("--tensor-parallel-size") is None or view.integer("--tensor-parallel-size") is not None
    )
    if cut is not None and is_known and int(cut.group(1)) != view.tp:
        message = f"{view.model_name} is cut for {cut.group(1)} ranks, and {view.tp} load it"
        place = view.place("--tensor-parallel-size")
        yield Hit("NPU005", place, message, f"--tensor-parallel-size {cut.group(1)}")


@on_server("NPU003", "NPU007")
def graphs(view: LaunchView) -> Iterator[Hit]:
    """How many graphs there may be, and the extension that is not there."""
    if view.is_eager:
        return
    limit = asked(view, "capture limit")
    place = view.place("--cudagraph-capture-sizes", COMPILATION)
    node = view.capture_node
    is_open = not view.capture_sizes and (
        node is not None or view.get("--cudagraph-capture-sizes") is not None
    )
    if limit is not None and not is_open and not 0 < len(view.capture_sizes) <= int(str(limit.value)):
        told = f"{len(view.capture_sizes)} sizes" if view.capture_sizes else "the default sizes"
        yield Hit("NPU003", node.place if node else place, f"{told} are captured; {limit.reason}")
    extension = asked(view, ".".join(GRAPH_EXTENSION))
    setting = view.is_key_on(*GRAPH_EXTENSION)
    if extension is not None and (setting is None or setting.is_on):
        at = setting.place if setting else view.place(ADDITIONAL)
        yield Hit("NPU007", at, f"enable_npugraph_ex is not off; {extension.reason}")


@on_server("NPU004")
def window(view: LaunchView) -> Iterator[Hit]:
    """The longest context."""
    practice, stated = asked(view, "window"), view.integer("--max-model-len")
    if practice is None or (stated is None and view.get("--max-model-len") is not None):
        return
    if stated is None or stated > int(str(practice.value)):
        told = f"--max-model-len is {stated}" if stated else "--max-model-len is left to the model"
        yield Hit("NPU004", view.place("--max-model-len"), f"{told}; {practice.reason}")
