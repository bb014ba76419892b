"""Where checks register themselves, by the ids of the rules that they can report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from qanat.deploy.lint.files import DocumentView, FileSet
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.values import Place

SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True)
class Hit:
    """What a check reports; severity, consequence and source come from the rule.

    Without `fix` the rule's own advice is shown.
    """

    rule_id: str
    place: Place
    message: str
    fix: str | None = None
    edits: tuple[Edit, ...] = ()


Check = Callable[[SubjectT], Iterable[Hit]]


@dataclass
class Registry(Generic[SubjectT]):
    """Checks over one kind of subject."""

    checks: list[tuple[tuple[str, ...], Check[SubjectT]]] = field(default_factory=list)

    def __call__(self, *rule_ids: str) -> Callable[[Check[SubjectT]], Check[SubjectT]]:
        """Decorator: the function may report these rules, and runs if one of them holds for the version."""

        def register(function: Check[SubjectT]) -> Check[SubjectT]:
            self.checks.append((rule_ids, function))
            return function

        return register


on_server: Registry[LaunchView] = Registry()
"""Checks of one `vllm serve`."""
on_flags: Registry[LaunchView] = Registry()
"""Checks of the flags of any program, and of flags that stand alone in a text."""
on_document: Registry[DocumentView] = Registry()
"""Checks of one file."""
on_files: Registry[FileSet] = Registry()
"""Checks across files."""
ENGINE_RULES = frozenset(("LNT002",))
"""Rules that the engine itself reports."""


def registered_rules() -> frozenset[str]:
    """Ids of all rules that some check can report."""
    registries: tuple[Registry[LaunchView] | Registry[DocumentView] | Registry[FileSet], ...]
    registries = (on_server, on_flags, on_document, on_files)
    checked = {rule for registry in registries for rule_ids, _ in registry.checks for rule in rule_ids}
    return ENGINE_RULES | checked
