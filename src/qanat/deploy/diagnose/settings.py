"""Settings that a log states, as the command they came from, and what the linter says of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qanat.config.flag_names import flag_of
from qanat.deploy.diagnose.python_values import ValueFault, read_python_value
from qanat.deploy.knowledge.kinds.rules import Severity
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.finding import Finding
from qanat.deploy.sources.documents import read_document

ARGUMENTS = "non-default args: "
SECRETS = re.compile(r"(?i)api_?key|token$|password|secret|credential")
_VARIABLE = re.compile(r"(?:\++ )?(?:export |declare -x )?([A-Z][A-Z0-9_]{2,})=(.*)$")
_SECRET_VALUE = re.compile(
    r"(?i)((?:api[_-]?keys?|hf_token|secret|password)['\"]?\s*[:=]\s*)(\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[^\s,}\]]+)"
)
_FULL_DUMP_KEYS = 8
"""A JSON setting with more keys is the whole configuration, defaults included, and not what the user wrote."""
_WRITTEN_BY_USERS: Mapping[str, tuple[str, ...]] = {
    "compilation_config": ("cudagraph_mode", "cudagraph_capture_sizes"),
    "kv_transfer_config": ("kv_connector", "kv_role", "kv_port", "kv_connector_extra_config"),
    "speculative_config": ("method", "model", "num_speculative_tokens", "draft_tensor_parallel_size"),
}
"""Of a whole configuration, the keys that users write; the rest may be defaults."""


_DEPENDS_ON: Mapping[str, str] = {
    "ENV019": "DYNAMIC_EPLB",
    "GRA008": "HCCL_OP_EXPANSION_MODE",
    "GRA011": "HCCL_OP_EXPANSION_MODE",
    "GRA018": "HCCL_OP_EXPANSION_MODE",
    "GRA019": "HCCL_OP_EXPANSION_MODE",
    "PD004": "ASCEND_BASE_PORT",
    "PORT002": "HCCL_IF_BASE_PORT",
}
"""Rules that would find nothing, or something else, if a variable were set. Logs need not show variables."""


@dataclass(frozen=True)
class SettingsFinding:
    """A finding of the linter about settings in a log, with the log's line they stand in.

    `unless` is the variable that would make it void and that the log does not show; empty where there is none.
    """

    finding: Finding
    file: str
    line: int
    unless: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether it surely asks for a change."""
        return self.finding.severity is not Severity.INFO and not self.unless


@dataclass
class Settings:
    """Flags and variables of a server's last start."""

    arguments: dict[str, Any] = field(default_factory=dict)
    arguments_at: tuple[str, int] | None = None
    variables: dict[str, tuple[str, str, int]] = field(default_factory=dict)

    def take_arguments(self, text: str, file: str, line: int) -> bool:
        """Takes a line with "non-default args: {...}"; False if the dict cannot be read."""
        try:
            value, _ = read_python_value(text[text.index(ARGUMENTS) + len(ARGUMENTS) :])
        except (ValueFault, RecursionError):
            return False
        if not isinstance(value, dict):
            return False
        self.arguments = value
        self.arguments_at = (file, line)
        return True

    def take_variable(self, text: str, file: str, line: int) -> None:
        """Takes a line such as `export NAME=value`; names that no component reads are left."""
        match = _VARIABLE.match(text)
        if match is None or SECRETS.search(match.group(1)):
            return
        name, value = match.groups()
        if any(name in table.entries for table in load_knowledge().variables()):
            self.variables[name] = (value.strip().strip("\"'"), file, line)

    def argument(self, name: str) -> Any:
        """A setting by its name with underscores; None if it is not there."""
        return self.arguments.get(name)

    def integer(self, name: str, default: int) -> int:
        """A whole number among the settings."""
        value = self.arguments.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def command(self) -> tuple[str, dict[int, tuple[str, int]]]:
        """A script with variables and command, and for each of its lines the place in the log."""
        lines: list[str] = []
        places: dict[int, tuple[str, int]] = {}
        for name, (value, file, line) in self.variables.items():
            lines.append(f"export {name}={shlex.quote(value)}")
            places[len(lines)] = (file, line)
        if self.arguments_at is not None:
            words = ["vllm serve", *_model(self.arguments), *_flags(self.arguments)]
            lines += [f"{word} \\" for word in words[:-1]] + words[-1:]
            for number in range(len(lines) - len(words) + 1, len(lines) + 1):
                places[number] = self.arguments_at
        return "\n".join(lines) + "\n", places

    def unless(self, rule: str) -> str:
        """The variable that would make a rule's finding void and that is not known; empty if there is none."""
        variable = _DEPENDS_ON.get(rule, "")
        return "" if variable in self.variables else variable


def findings_of(servers: Sequence[Settings], image: str | None) -> list[SettingsFinding]:
    """What the linter says of servers, each alone and about each other.

    Args:
        servers: settings from logs of different names.
        image: image, tag or version of vllm-ascend; None if unknown.

    Raises:
        ImageError: no version can be read from `image`.
    """
    documents, places = [], {}
    for server in servers:
        if server.arguments_at is not None:
            text, lines = server.command()
            name = server.arguments_at[0]
            documents.append(read_document(name, text))
            places[name] = (server, lines)
    findings = []
    for one in lint(documents, image) if documents else []:
        server, lines = places[one.place.path]
        if one.place.line in lines:
            findings.append(SettingsFinding(one, *lines[one.place.line], server.unless(one.rule_id)))
    return findings


def redact(text: str) -> str:
    """A line without the secrets that settings may hold."""
    return _SECRET_VALUE.sub(r"\1***", text)


def _model(arguments: Mapping[str, Any]) -> list[str]:
    model = arguments.get("model_tag") or arguments.get("model")
    return [shlex.quote(str(model))] if model else []


def _flags(arguments: Mapping[str, Any]) -> Iterator[str]:
    known = load_knowledge().serve_flags.entries
    for name, value in arguments.items():
        flag = flag_of(name)
        if flag not in known or name in ("model", "model_tag") or SECRETS.search(name) or value is None:
            continue
        if value is True or value is False:
            yield flag if value else f"--no-{flag[2:]}"
        elif isinstance(value, dict):
            kept = _written(name, value)
            if kept:
                yield f"{flag} {shlex.quote(json.dumps(kept))}"
        elif isinstance(value, list):
            yield " ".join(
                [flag, *(shlex.quote(one if isinstance(one, str) else json.dumps(one)) for one in value)]
            )
        else:
            yield f"{flag} {shlex.quote(str(value))}"


def _written(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that the user wrote, as far as can be told from what was printed."""
    kept = {key: one for key, one in value.items() if one not in (None, "", [], {})}
    if len(value) > _FULL_DUMP_KEYS:
        kept = {key: one for key, one in kept.items() if key in _WRITTEN_BY_USERS.get(name, ())}
    mode = kept.get("cudagraph_mode")
    if mode is not None and not isinstance(mode, str):
        kept.pop("cudagraph_mode")
    return kept
