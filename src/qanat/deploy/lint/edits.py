"""Edits that are safe to make without asking."""

from __future__ import annotations

import re

from qanat.deploy.lint.finding import Edit
from qanat.deploy.sources.launch import Assignment, Document
from qanat.deploy.sources.values import Source


def remove_assignment(document: Document, assignment: Assignment) -> tuple[Edit, ...]:
    """Takes out the line of an assignment; nothing if other things stand on it."""
    start, end = assignment.place.start, assignment.place.end
    first = document.text.rfind("\n", 0, start) + 1
    last = document.text.find("\n", end)
    last = len(document.text) if last < 0 else last + 1
    around = document.text[first:start] + document.text[end:last]
    if assignment.origin != "export" or not re.fullmatch(r"\s*export\s+\s*", around):
        return ()
    return (Edit(Source(document.path, document.text).place(first, last), ""),)
