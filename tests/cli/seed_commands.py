"""The serve commands of the five guides: a copy of the command lines, and how they are found in the guides' text."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
COPY = Path(__file__).parent / "seed_commands.txt"
_LAUNCHER = re.compile(r"vllm serve|python -m vllm\.entrypoints\.openai\.api_server")
_MODULE = "vllm.entrypoints.openai.api_server"


@dataclass(frozen=True)
class SeedCommand:
    """One serve command.

    Attributes:
        name: guide and place in it, for pytest.
        words: the command line, taken apart as a shell does.
    """

    name: str
    words: tuple[str, ...]

    @property
    def is_module(self) -> bool:
        """True if it starts vLLM's Python module."""
        return _MODULE in self.words

    @property
    def is_role(self) -> bool:
        """True for one half of a service of several processes."""
        return "--kv-transfer-config" in self.words

    @property
    def draft(self) -> dict[str, Any]:
        """What the command says of a draft model of its own; empty where it has none."""
        given = (json.loads(word) for word in self.words if word.startswith("{"))
        return next((value for value in given if "model" in value), {})

    def arguments(self, model: str, draft: str = "") -> list[str]:
        """What stands behind `qanat serve`, or behind the module, with other models."""
        rest = list(self.words[3 if self.is_module else 2 :])
        if self.draft:
            place = next(i for i, word in enumerate(rest) if word.startswith("{") and '"model"' in word)
            rest[place] = json.dumps(self.draft | {"model": draft})
        if self.is_module:
            return [f"--model={model}" if word.startswith("--model=") else word for word in rest]
        return [model, *rest[1:]]


def copied() -> list[SeedCommand]:
    """The commands in this folder's copy."""
    commands = []
    for line in COPY.read_text(encoding="utf-8").splitlines():
        name, _, command = line.partition(": ")
        commands.append(SeedCommand(name, tuple(shlex.split(command))))
    return commands


def found() -> list[SeedCommand]:
    """The commands in the guides, which lie beside the checkout."""
    commands = []
    for path in sorted(SEEDS.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        starts = [match.start() for match in _LAUNCHER.finditer(text) if _is_command(text, match)]
        for number, start in enumerate(starts):
            commands.append(SeedCommand(f"{path.name[:3]}-{number}", tuple(shlex.split(_cut(text[start:])))))
    return commands


def _is_command(text: str, match: re.Match[str]) -> bool:
    """A launcher that begins a line, with a line that goes on."""
    begin = text.rfind("\n", 0, match.start()) + 1
    line = text[begin : text.find("\n", match.end())]
    return text[begin : match.start()].strip() in ("", "nohup") and line.rstrip().endswith("\\")


def _cut(text: str) -> str:
    """The command at the head of the text: lines while they go on or a quote is open, then up to other writing."""
    taken = ""
    for line in text.splitlines(keepends=True):
        taken += line
        if not line.rstrip().endswith("\\") and taken.count("'") % 2 == 0:
            break
    taken = re.split(r"[^\x00-\x7f]|>>", taken, maxsplit=1)[0]
    return taken.replace("\\\n", " ").replace("\\ \n", " ")
