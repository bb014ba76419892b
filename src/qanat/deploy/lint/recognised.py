"""Whether a file holds anything that rules look at: one that does not has not been checked, whatever it says."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.sources.launch import Document

VARIABLES = ("ascend_variables", "engine_variables", "runtime_variables", "vllm_variables")
PROGRAMS = frozenset(
    "cpupower hccn_tool irqbalance killall kubectl npu-smi pkill ray service sysctl systemctl vllm".split()
)
"""Commands that rules look at, besides those that start a server or a container."""


def recognised(documents: Sequence[Document]) -> list[Document]:
    """The files with a launch, a container, a known variable or flag, a version, or a command that rules look at."""
    knowledge = load_knowledge()
    return [document for document in documents if _is_recognised(document, knowledge)]


def _is_recognised(document: Document, knowledge: Knowledge) -> bool:
    if document.launches or document.containers or document.notes:
        return True
    names = {assignment.name for assignment in document.assignments}
    for mention in document.mentions:
        if mention.kind == "version":
            return True
        names.add(mention.value.text)
    if any(command.program in PROGRAMS for command in document.commands):
        return True
    tables = [knowledge.tables[table].entries for table in (*VARIABLES, "serve_flags")]
    return any(name in table for name in names for table in tables)
