"""Figures and versions that a log states about its server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Keep = Literal["first", "last", "smallest", "largest"]


@dataclass(frozen=True)
class FactKind:
    """A figure: its name for people, and which of several to keep (ranks differ, and some grow)."""

    label: str
    keep: Keep = "first"


KINDS: Mapping[str, FactKind] = {
    "vllm": FactKind("vLLM"),
    "vllm_ascend": FactKind("vllm-ascend"),
    "platform": FactKind("platform"),
    "model": FactKind("model"),
    "world": FactKind("ranks", "largest"),
    "block_tokens": FactKind("tokens of a cache block", "last"),
    "capture_sizes": FactKind("capture sizes before rounding"),
    "max_graphs": FactKind("capture sizes the streams allow"),
    "async_scheduling": FactKind("asynchronous scheduling", "last"),
    "load_s": FactKind("seconds to load weights", "largest"),
    "weights_gib": FactKind("GiB of weights on one NPU", "largest"),
    "weights_gib_2": FactKind("GiB of weights on one NPU", "largest"),
    "kv_gib": FactKind("GiB left for the KV cache", "smallest"),
    "available_bytes": FactKind("GiB left for the KV cache", "smallest"),
    "total_bytes": FactKind("GiB of an NPU", "smallest"),
    "kv_tokens": FactKind("tokens in the KV cache", "smallest"),
    "max_model_len": FactKind("longest request"),
    "max_concurrency": FactKind("requests of full length at once", "smallest"),
    "capture_s": FactKind("seconds to capture graphs", "largest"),
    "graphs_gib": FactKind("GiB of graphs", "largest"),
    "acceptance_length": FactKind("tokens of a speculative step", "last"),
    "acceptance_percent": FactKind("percent of drafts kept", "last"),
    "url": FactKind("address"),
}
"""Names are those of groups in patterns of the knowledge base."""


@dataclass(frozen=True)
class Fact:
    """A figure as the log writes it, and where."""

    name: str
    value: str
    file: str
    line: int

    @property
    def label(self) -> str:
        """Its name for people."""
        return KINDS[self.name].label

    @property
    def shown(self) -> str:
        """Its value for people; bytes in GiB."""
        number = as_number(self.value)
        return f"{number / 2**30:.1f}" if self.name.endswith("_bytes") and number is not None else self.value


class Facts:
    """The figures of a server's last start."""

    def __init__(self) -> None:
        self.by_name: dict[str, Fact] = {}

    def take(self, values: Mapping[str, str | None], file: str, line: int) -> None:
        """Takes what a line says; names that are no figures are left."""
        for name, value in values.items():
            if name in KINDS and value:
                fact = Fact(name, value, file, line)
                before = self.by_name.get(name)
                if before is None or _is_better(KINDS[name].keep, value, before.value):
                    self.by_name[name] = fact

    def value(self, name: str) -> str | None:
        """A figure as text; None if no line states it."""
        fact = self.by_name.get(name)
        return fact.value if fact else None

    def number(self, name: str) -> float | None:
        """A figure as a number; None if no line states it, or not as one."""
        return as_number(self.value(name))

    def begin_anew(self) -> None:
        """Forgets all: the server was started again."""
        self.by_name.clear()


def _is_better(keep: Keep, value: str, before: str) -> bool:
    if keep == "last":
        return True
    new, old = as_number(value), as_number(before)
    if keep == "first" or new is None or old is None:
        return False
    return new < old if keep == "smallest" else new > old


def as_number(text: str | None) -> float | None:
    """A number with or without commas; None for anything else."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
