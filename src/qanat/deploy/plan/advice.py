"""What practice there is for a choice, and a note of every choice that is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.entry import Confidence
from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.knowledge.kinds.practices import Circumstances, Practice
from qanat.deploy.knowledge.versions import Version, is_in_range
from qanat.deploy.plan.model import Choice, RoleName

TABLES = ("practices_sizes", "practices_switches", "practices_environment")
WISH = "your wish"
"""Source of what the user stated."""


@dataclass(frozen=True)
class Situation:
    """What practices depend on.

    Attributes:
        model: its sizes.
        variant: of its weights.
        chip: name of the accelerator.
        family: of the accelerator.
        scenario: what the service is for.
        topology: how engines lie over nodes.
        num_nodes: of the whole deployment.
        version: of vllm-ascend.
        role: of the engine.
        tp: tensor parallel size; None while it is not decided.
        dp: data parallel size; None while it is not decided.
    """

    model: ModelFacts
    variant: str
    chip: str
    family: str
    scenario: str
    topology: str
    num_nodes: int
    version: Version
    role: RoleName
    tp: int | None = None
    dp: int | None = None


def holds(when: Circumstances, situation: Situation) -> bool:
    """Whether all circumstances of a practice are there."""
    listed = (
        (when.scenarios, situation.scenario),
        (when.models, situation.model.name),
        (when.variants, situation.variant),
        (when.roles, situation.role),
        (when.topologies, situation.topology),
    )
    if any(allowed and one not in allowed for allowed, one in listed):
        return False
    if when.chips and not {situation.chip, situation.family} & set(when.chips):
        return False
    if when.attention is not None and (when.attention == "hybrid") is not situation.model.is_hybrid:
        return False
    if when.mlp is not None and (when.mlp == "moe") is not situation.model.is_moe:
        return False
    if when.least_nodes is not None and situation.num_nodes < when.least_nodes:
        return False
    sizes = ((when.is_tensor_parallel, situation.tp), (when.is_data_parallel, situation.dp))
    return all(asked is None or asked is ((size or 1) > 1) for asked, size in sizes)


@dataclass(frozen=True)
class Note:
    """A choice whose reason may still lack its numbers."""

    value: Any
    reason: str
    source: str
    confidence: Confidence
    changes_if: str = ""


@dataclass
class Advice:
    """Practices for one engine, and the notes of what was chosen for it.

    Attributes:
        notes: by what was chosen, in order; a later note for the same thing takes the place of the first.
        numbers: what reasons may name in braces.
    """

    knowledge: Knowledge
    situation: Situation
    notes: dict[str, Note] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)

    def sized(self, tp: int, dp: int) -> Advice:
        """Advice for an engine of these sizes, with the notes made so far."""
        situation = replace(self.situation, tp=tp, dp=dp)
        return Advice(self.knowledge, situation, dict(self.notes), dict(self.numbers))

    def find(self, what: str) -> Practice | None:
        """The practice that holds; None if there is none."""
        for practice in self._practices(what):
            is_there = is_in_range(self.situation.version, practice.since, practice.until)
            if is_there and holds(practice.when, self.situation):
                return practice
        return None

    def _practices(self, what: str) -> Iterator[Practice]:
        for table in TABLES:
            for practice in self.knowledge.tables[table].entries.values():
                if practice.what == what:
                    yield practice

    def heed(self) -> list[Practice]:
        """All cautions that hold."""
        return [
            practice
            for practice in self._practices("caution")
            if is_in_range(self.situation.version, practice.since, practice.until)
            and holds(practice.when, self.situation)
        ]

    def remark(self, what: str, **numbers: Any) -> list[str]:
        """What there is to say about something, with its numbers; empty if nothing is known."""
        practice = self.find(what)
        if practice is None:
            return []
        return [f"{practice.reason.format_map(_Numbers(numbers))} ({practice.source})"]

    def take(self, what: str, stated: Any = None) -> Any:
        """What the user stated, else what practice says; None if there is no practice. Notes it."""
        if stated is not None:
            self.state(what, stated)
            return stated
        practice = self.find(what)
        if practice is None:
            return None
        self._follow(what, practice, practice.value)
        return practice.value

    def compute(self, what: str, value: Any, by: str | None = None) -> None:
        """Notes a computed value with the reason of its practice, or of another one that decided it."""
        practice = self.find(by or what)
        if practice is not None:
            self._follow(what, practice, value)

    def _follow(self, what: str, practice: Practice, value: Any) -> None:
        self.notes[what] = Note(
            value, practice.reason, practice.source, practice.confidence, practice.changes_if
        )

    def state(self, what: str, value: Any) -> None:
        """Notes a value that the user stated."""
        self.notes[what] = Note(value, "as you asked", WISH, "computed")

    def reckon(self, what: str, value: Any, reason: str, changes_if: str = "") -> None:
        """Notes a value that follows from numbers alone."""
        self.notes[what] = Note(value, reason, "arithmetic", "computed", changes_if)

    def obey(self, what: str, value: Any, rule_id: str) -> None:
        """Notes a value that a rule of the linter forces."""
        rule = self.knowledge.rules[rule_id]
        reason = f"{rule.title} ({rule_id}): {rule.effect[0].lower()}{rule.effect[1:].rstrip('.')}"
        self.notes[what] = Note(value, reason, rule.source, rule.confidence)

    def choices(self, role: RoleName | None) -> list[Choice]:
        """The notes as choices, with the numbers in their reasons."""
        numbers = _Numbers(self.numbers)
        return [
            Choice(
                what=what,
                value=value_text(note.value),
                reason=note.reason.format_map(numbers),
                source=note.source,
                confidence=note.confidence,
                changes_if=note.changes_if.format_map(numbers),
                role=role,
            )
            for what, note in self.notes.items()
        ]


class _Numbers(dict[str, Any]):
    """Braces that are no number, as in JSON, stay as they are."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def value_text(value: Any) -> str:
    """A value as a user would write it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return f"{value:g}" if isinstance(value, float) else str(value)
