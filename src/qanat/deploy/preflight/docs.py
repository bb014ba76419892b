"""Writes the reference page of preflight's checks from the knowledge base, and checks that it is current.

python -m qanat.deploy.preflight.docs docs/reference/deploy-checks.md
python -m qanat.deploy.preflight.docs --check docs/reference/deploy-checks.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from qanat.config.generated_page import write_or_check
from qanat.deploy.knowledge.kinds.chips import DeviceName, DriverSupport
from qanat.deploy.knowledge.kinds.models import QuantisedType
from qanat.deploy.knowledge.kinds.numbers import Threshold
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.markdown_text import cell, plain
from qanat.deploy.preflight.known import checks, settings

COMMAND = "python -m qanat.deploy.preflight.docs docs/reference/deploy-checks.md"
HEAD = f"""# Checks of `qanat deploy preflight`

<!-- Made by `{COMMAND}`. Change the files host_*.yaml, drivers.yaml, device_names.yaml and quantised_types.yaml in
src/qanat/deploy/knowledge/data, not this page. -->

What [`qanat deploy preflight`](../deploy-preflight.md) looks at, why it matters, what to do, and where that is known
from. The word behind a source says how it was learnt; what is unverified nobody has measured.
"""


def render() -> str:
    """The page."""
    lines = [HEAD, *_checks(), *_settings(), *_thresholds(), *_drivers(), *_names(), *_types()]
    return "\n".join(lines) + "\n"


def _checks() -> Iterator[str]:
    for name, check in checks().items():
        yield f"### {name}\n"
        yield f"**{check.title}**\n"
        yield f"- Why: {_plain(check.why)}"
        yield f"- Do: {_plain(check.fix)}"
        yield f"- Source: {_plain(check.source)} ({check.confidence})\n"


def _settings() -> Iterator[str]:
    yield "## Kernel settings\n"
    yield "| setting | file | right if | why | set it with | source |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, setting in settings().items():
        right = f"{setting.is_right_if.replace('_', ' ')} {setting.value}"
        files = ", ".join(setting.paths)
        cells = (name, files, right, setting.why, setting.fix, f"{setting.source} ({setting.confidence})")
        yield "| " + " | ".join(_plain(cell) for cell in cells) + " |"
    yield ""


def _thresholds() -> Iterator[str]:
    yield "## Numbers\n"
    yield "| number | value | what | source |"
    yield "| --- | --- | --- | --- |"
    entries: dict[str, Threshold] = dict(load_knowledge().tables["host_thresholds"].entries)
    for name, entry in entries.items():
        value = f"{entry.value:g} {entry.unit}"
        yield f"| {name} | {value} | {_plain(entry.about)} | {_plain(entry.source)} ({entry.confidence}) |"
    yield ""


def _drivers() -> Iterator[str]:
    yield "## Drivers\n"
    yield "| CANN | oldest driver | good for graphs from | chips | source |"
    yield "| --- | --- | --- | --- | --- |"
    entries: dict[str, DriverSupport] = dict(load_knowledge().tables["drivers"].entries)
    for name, entry in entries.items():
        chips = ", ".join(entry.chips)
        source = f"{_plain(entry.source)} ({entry.confidence})"
        yield f"| {name} | {entry.oldest} | {entry.recommended} | {chips} | {source} |"
    yield ""


def _names() -> Iterator[str]:
    yield "## Names of chips in npu-smi\n"
    yield "| name | chip |"
    yield "| --- | --- |"
    entries: dict[str, DeviceName] = dict(load_knowledge().tables["device_names"].entries)
    for name, entry in entries.items():
        yield f"| `{name}` | {entry.chip} |"
    yield ""


def _types() -> Iterator[str]:
    yield "## Types of quantised weights\n"
    yield "| type | dtype of the weight | tensors beside it |"
    yield "| --- | --- | --- |"
    entries: dict[str, QuantisedType] = dict(load_knowledge().tables["quantised_types"].entries)
    for name, entry in entries.items():
        yield f"| {name} | {', '.join(entry.dtypes)} | {', '.join(entry.companions)} |"


def _plain(text: str) -> str:
    """Text that Markdown shows as it stands, also in a table."""
    return cell(plain(text))


def main(arguments: Sequence[str]) -> int:
    """Writes the page, or with --check compares it; returns the exit code."""
    return write_or_check(arguments, render, COMMAND, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
