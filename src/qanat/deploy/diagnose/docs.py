"""Writes the reference page of log signatures and of what users hit, and checks that it is current.

python -m qanat.deploy.diagnose.docs docs/reference/deploy-signatures.md
python -m qanat.deploy.diagnose.docs --check docs/reference/deploy-signatures.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import cast

from qanat.config.generated_page import write_or_check
from qanat.deploy.diagnose.stages import stage_patterns
from qanat.deploy.knowledge.entry import Lifetime
from qanat.deploy.knowledge.kinds.logs import LogPart, LogSignature
from qanat.deploy.knowledge.kinds.symptoms import Issue
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.markdown_text import code, plain

COMMAND = "python -m qanat.deploy.diagnose.docs docs/reference/deploy-signatures.md"

HEAD = f"""# What `qanat deploy diagnose` knows

<!-- Made by `{COMMAND}`. Change signatures*.yaml and issues.yaml in src/qanat/deploy/knowledge/data, not this page. -->

Lines of logs that [`qanat deploy diagnose`](../deploy-diagnose.md) recognises, and what users hit. Versions are those
of vllm-ascend, both ends included; a line without one holds for every version that is known.
"""

HEADINGS: dict[LogPart, str] = {
    "start": "Settings and platform",
    "connect": "Connections between ranks",
    "load": "Weights",
    "profile": "Compilation and memory",
    "cache": "KV cache",
    "capture": "Graphs",
    "listen": "HTTP server",
    "ready": "Ready",
    "serve": "While it serves",
    "disaggregated": "Prefill and decode apart",
    "bench": "Clients",
    "container": "Containers",
    "host": "Host",
}


def render() -> str:
    """The page."""
    knowledge = load_knowledge()
    lines = [HEAD]
    for part, heading in HEADINGS.items():
        lines.append(f"## {heading}\n")
        for signature in knowledge.signatures:
            if signature.stage == part:
                lines += _signature(signature)
    lines.append("## Progress of a start\n\n| stage | line |\n| --- | --- |")
    lines += [f"| {entry.stage} | {_cell(entry.pattern)} |" for entry, _ in stage_patterns()]
    lines.append("\n## What users hit\n")
    lines.append("Each thread with what tells of it. Threads of which only the title was read say so.\n")
    issues = [cast(Issue, entry) for entry in knowledge.tables["issues"].entries.values()]
    for topic in dict.fromkeys(issue.topic for issue in issues):
        lines.append(f"### {topic[0].upper()}{topic[1:]}\n")
        lines += [_issue(issue) for issue in issues if issue.topic == topic]
        lines.append("")
    return "\n".join(lines)


def _signature(signature: LogSignature) -> Iterator[str]:
    yield f"### {signature.name}\n"
    facts = [f"**{signature.severity.value}**", *_life(signature)]
    if signature.is_consequence:
        facts.append("follows from another fault")
    elif signature.can_follow:
        facts.append("follows from another fault where one stands before it")
    yield f"{code(signature.pattern)}\n"
    yield ", ".join(facts) + "\n"
    yield f"- {'Cause' if signature.remedy else 'Meaning'}: {plain(signature.cause)}"
    if signature.remedy:
        yield f"- Remedy: {plain(signature.remedy)}"
    if signature.rules:
        yield f"- Rules: {', '.join(_rule(name) for name in signature.rules)}"
    if signature.issues:
        yield f"- Threads: {', '.join(_thread(name) for name in signature.issues)}"
    yield f"- Source: {plain(signature.source)} ({signature.confidence})\n"


def _issue(issue: Issue) -> str:
    parts = [f"- {_thread(issue.name)}: {plain(issue.symptom)}"]
    if issue.cause:
        parts.append(f"Cause: {plain(issue.cause)}")
    if issue.remedy:
        parts.append(f"Remedy: {plain(issue.remedy)}")
    told = [f"`{action}`" for action in issue.caught_by if action != "nothing"]
    refs = [_rule(name) for name in issue.rules] + [f"[{name}](#{name.lower()})" for name in issue.signatures]
    if told:
        names = f" ({', '.join(refs)})" if refs else ""
        parts.append(f"Told by {', '.join(told)}{names}.")
    about = [*_life(issue), *([issue.state] if issue.state != "unknown" else [])]
    if issue.confidence == "unverified":
        about.append("title only")
    return " ".join(parts) + (f" ({', '.join(about)})" if about else "")


def _life(entry: Lifetime) -> list[str]:
    if entry.since and entry.since == entry.until:
        return [entry.since]
    return [f"{word} {end}" for word, end in (("since", entry.since), ("until", entry.until)) if end]


def _thread(name: str) -> str:
    repository, number = name.split("#")
    return f"[{name}](https://github.com/{repository}/issues/{number})"


def _rule(name: str) -> str:
    return f"[{name}](deploy-rules.md)"


def _cell(pattern: str) -> str:
    return f"`{pattern}`" if "|" not in pattern else f"<code>{plain(pattern).replace('|', '&#124;')}</code>"


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with --check compares it; returns the exit code."""
    return write_or_check(arguments, render, COMMAND, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
