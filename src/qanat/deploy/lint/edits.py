"""Edits that are safe to make without asking."""

from __future__ import annotations

import re

from qanat.deploy.lint.finding import Edit
from qanat.deploy.sources.launch import Assignment


def remove_assignment(assignment: Assignment) -> tuple[Edit, ...]:
    """Takes out the line of an assignment; nothing if other things stand on it."""
    source, (start, end) = assignment.value.source, (assignment.place.start, assignment.place.end)
    if source is None or source.path != assignment.place.path or assignment.origin != "export":
        return ()
    first = source.text.rfind("\n", 0, start) + 1
    last = source.text.find("\n", end)
    last = len(source.text) if last < 0 else last + 1
    if not re.fullmatch(r"\s*export\s+\s*", source.text[first:start] + source.text[end:last]):
        return ()
    return (Edit(source.place(first, last), ""),)
