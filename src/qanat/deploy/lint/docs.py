"""Writes the reference page of the linter's rules from the knowledge base, and checks that it is current.

python -m qanat.deploy.lint.docs docs/reference/deploy-rules.md
python -m qanat.deploy.lint.docs --check docs/reference/deploy-rules.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from qanat.config.generated_page import write_or_check
from qanat.deploy.knowledge.kinds.rules import Rule
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.report import WORDS
from qanat.deploy.markdown_text import plain

COMMAND = "python -m qanat.deploy.lint.docs docs/reference/deploy-rules.md"

HEAD = f"""# Rules of `qanat deploy lint`

<!-- Made by `{COMMAND}`. Change the rules in src/qanat/deploy/knowledge/data, not this page. -->

What [`qanat deploy lint`](../deploy-lint.md) looks for. Versions are those of vllm-ascend, both ends included; a rule
without one holds for every version that is known. A comment `# qanat: ignore[RULE]` silences a rule.
"""

GROUPS = {
    "CLI": "Command line and JSON arguments",
    "ADD": "Keys of --additional-config",
    "ENV": "Environment variables",
    "GRA": "Graph capture",
    "SPC": "Speculative decoding",
    "HYB": "Hybrid models and prefix caching",
    "MOE": "Experts and FlashComm1",
    "MOD": "Models and weights",
    "MEM": "Memory and batches",
    "SCH": "Scheduling",
    "TOP": "Parallelism over NPUs and nodes",
    "PD": "Prefill and decode apart",
    "CON": "Settings that exclude each other",
    "PORT": "Ports",
    "SRV": "Service and security",
    "HOST": "Hosts and containers",
    "TXT": "What guides say",
    "LNT": "The linter itself",
}
"""Heading for the letters that rule ids begin with."""


def render() -> str:
    """The page."""
    lines = [HEAD]
    heading = ""
    for rule in sorted(load_knowledge().rules.values(), key=_order):
        letters = rule.name.rstrip("0123456789")
        if heading != GROUPS.get(letters, letters):
            heading = GROUPS.get(letters, letters)
            lines.append(f"## {heading}\n")
        lines += _section(rule)
    return "\n".join(lines)


def _order(rule: Rule) -> tuple[int, str]:
    letters = rule.name.rstrip("0123456789")
    known = list(dict.fromkeys(GROUPS.values()))
    heading = GROUPS.get(letters, letters)
    return (known.index(heading) if heading in known else len(known), rule.name)


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.name}: {rule.title}\n"
    facts = [f"**{rule.severity.value}**", WORDS[rule.consequence]]
    if rule.since:
        facts.append(f"since {rule.since}")
    if rule.until:
        facts.append(f"until {rule.until}")
    yield ", ".join(facts) + "\n"
    yield f"- When: {plain(rule.when)}"
    yield f"- Effect: {plain(rule.effect)}"
    yield f"- Fix: {plain(rule.fix)}"
    for signature in load_knowledge().signatures:
        if rule.name in signature.rules:
            yield f"- In the log: `{signature.pattern}`"
    if rule.name == "CON001":
        yield from _conflicts()
    yield f"- Source: {plain(rule.source)} ({rule.confidence})\n"


def _conflicts() -> Iterator[str]:
    """The list behind the rule about settings that exclude each other."""
    for conflict in load_knowledge().conflicts:
        ends = [
            f"since {conflict.since}" if conflict.since else "",
            f"until {conflict.until}" if conflict.until else "",
        ]
        versions = ", ".join(end for end in ends if end)
        yield f"- {plain(conflict.because)}" + (f" ({versions})" if versions else "")


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with --check compares it; returns the exit code."""
    return write_or_check(arguments, render, COMMAND, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
