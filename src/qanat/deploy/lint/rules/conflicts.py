"""Settings that exclude each other, as the knowledge base lists them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qanat.deploy.knowledge.kinds.settings import Condition
from qanat.deploy.knowledge.versions import is_in_range
from qanat.deploy.lint.reading import is_truthy, read_integer
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import ADDITIONAL, LaunchView
from qanat.deploy.sources.json_text import UNKNOWN
from qanat.deploy.sources.values import Place

DEFAULTS = {
    "--tensor-parallel-size": 1,
    "--pipeline-parallel-size": 1,
    "--data-parallel-size": 1,
}
"""Sizes that count where a flag is not given."""


@dataclass(frozen=True)
class State:
    """A setting of a launch: `value` is None if it is not given."""

    value: object
    place: Place


@on_server("CON001")
def conflicts(view: LaunchView) -> Iterator[Hit]:
    """Every conflict whose conditions all hold."""
    found: dict[Place, list[str]] = {}
    for conflict in view.knowledge.conflicts:
        if not is_in_range(view.version, conflict.since, conflict.until):
            continue
        places = [_holds(view, condition) for condition in conflict.conditions]
        if None not in places and places[0] is not None:
            found.setdefault(places[0], []).append(conflict.because)
    for place, reasons in found.items():
        yield Hit("CON001", place, "; ".join(dict.fromkeys(reasons)))


def _holds(view: LaunchView, condition: Condition) -> Place | None:
    """Where a condition holds; None if it does not, or cannot be known."""
    if condition.role is not None:
        return view.launch.place if view.kv_role == condition.role else None
    if condition.model is not None:
        model = view.model
        is_kind = model is not None and model.is_moe is (condition.model == "moe")
        return view.launch.place if is_kind else None
    state = _state(view, condition.setting or "")
    return state.place if _matches(condition, state) else None


def _state(view: LaunchView, setting: str) -> State:
    if setting.startswith("--"):
        named = view.get(setting)
        place = view.place(setting)
        if named is None:
            return State(DEFAULTS.get(setting), place)
        if named.entry.kind == "bool":
            return State(bool(view.switch(setting)), place)
        value = named.flag.value
        return State(value.text if value is not None and value.is_known else UNKNOWN, place)
    node = view.key(ADDITIONAL, *setting.split("."))
    return State(node.value if node else None, (node.key_place or node.place) if node else view.launch.place)


def _matches(condition: Condition, state: State) -> bool:
    value = state.value
    if value is UNKNOWN:
        return False
    if condition.above is not None or condition.below is not None:
        number = value if isinstance(value, int) else read_integer(value) if isinstance(value, str) else None
        if number is None:
            return False
        above, below = condition.above, condition.below
        return (above is None or number > above) and (below is None or number < below)
    if condition.state == "set":
        return value is not None
    if condition.state == "on":
        return value is not None and is_truthy(value)
    return _is_off(condition, value)


def _is_off(condition: Condition, value: object) -> bool:
    """Off: a flag that is not given counts, a key only where it is stated."""
    is_flag = (condition.setting or "").startswith("--")
    return (value is None and is_flag) or (value is not None and not is_truthy(value))
