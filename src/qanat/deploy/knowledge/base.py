"""All that is known, as rules, plans, checks and pages ask for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from qanat.deploy.knowledge.entry import Entry, Lifetime
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.logs import LogSignature
from qanat.deploy.knowledge.kinds.models import ModelFacts, WeightFormat, Weights
from qanat.deploy.knowledge.kinds.numbers import Baseline, Communicator
from qanat.deploy.knowledge.kinds.releases import Release
from qanat.deploy.knowledge.kinds.rules import Rule
from qanat.deploy.knowledge.kinds.settings import ConfigKey, Conflict, Connector, EnvVar, Flag, Parser
from qanat.deploy.knowledge.versions import Presence, Timeline, Version, must_parse

EntryT = TypeVar("EntryT", bound=Entry)


@dataclass(frozen=True)
class Table(Generic[EntryT]):
    """The entries of one file, by name.

    `counts_vllm` says that lifetimes are versions of vLLM; those of vllm-ascend pair with the same numbers.
    """

    file: str
    about: str
    entries: Mapping[str, EntryT]
    timeline: Timeline | None
    counts_vllm: bool

    def presence(self, name: str, version: Version) -> Presence:
        """Whether a release of vllm-ascend has the entry `name`; entries without a lifetime are always there."""
        entry = self.entries[name]
        if self.timeline is None or not isinstance(entry, Lifetime):
            return Presence.PRESENT
        counted = version.base if self.counts_vllm else version
        return self.timeline.presence(counted, entry.since, entry.until)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """All that is known, the same object for everybody. Tables are by file; the rest is merged from them, by name."""

    tables: Mapping[str, Table[Any]]
    rules: Mapping[str, Rule]
    releases: tuple[Release, ...]
    models: tuple[ModelFacts, ...]
    chips: tuple[Chip, ...]
    signatures: tuple[LogSignature, ...]
    conflicts: tuple[Conflict, ...] = ()
    json_flags: frozenset[str] = field(default_factory=frozenset)

    @property
    def serve_flags(self) -> Table[Flag]:
        """Flags of `vllm serve`."""
        return self.tables["serve_flags"]

    @property
    def bench_flags(self) -> Table[Flag]:
        """Flags of `vllm bench`; names start with the subcommand."""
        return self.tables["bench_flags"]

    @property
    def connectors(self) -> Table[Connector]:
        """KV connectors."""
        return self.tables["connectors"]

    @property
    def parsers(self) -> Table[Parser]:
        """Tool and reasoning parsers."""
        return self.tables["parsers"]

    @property
    def baselines(self) -> Table[Baseline]:
        """Published figures."""
        return self.tables["baselines"]

    @property
    def weight_formats(self) -> Mapping[str, WeightFormat]:
        """Formats of weights, by name."""
        return self.tables["weight_formats"].entries

    @property
    def communicators(self) -> Mapping[str, Communicator]:
        """Groups of HCCL, by name."""
        return self.tables["communicators"].entries

    def estimate(self, name: str) -> float:
        """A number that sizes of memory are guessed with."""
        value: float = self.tables["estimates"].entries[name].value
        return value

    def threshold(self, table: str, name: str) -> float:
        """A number that checks, questions or scripts work with, in the unit of its entry."""
        value: float = self.tables[table].entries[name].value
        return value

    @property
    def weights(self) -> tuple[Weights, ...]:
        """Published weights of all models."""
        return tuple(self.tables["weights"].entries.values())

    def variables(self) -> Iterator[Table[EnvVar]]:
        """The tables of environment variables, those of vllm-ascend first."""
        for name in ("ascend_variables", "vllm_variables", "runtime_variables"):
            yield self.tables[name]

    def config_keys(self, flag: str) -> Table[ConfigKey] | None:
        """The table that holds the keys of a JSON-valued flag; None if its keys are not known."""
        if flag == "--additional-config":
            return self.tables["additional_config"]
        return self.tables["json_keys"] if flag in self.json_flags else None

    def release(self, version: Version) -> Release | None:
        """The release with this version, else the nearest one with the same vLLM."""
        same = [release for release in self.releases if must_parse(release.vllm) == version.base]
        exact = [release for release in same if must_parse(release.name) == version]
        return next(iter(exact or same), None)

    def chip_of(self, suffixes: Collection[str]) -> Chip | None:
        """The chip that an image is built for, by the suffixes of its tag; None if they name none."""
        return next(
            (chip for chip in self.chips if chip.image_suffix and chip.image_suffix in suffixes), None
        )

    @property
    def newest_stable(self) -> Release:
        """What is assumed where nothing says which version runs."""
        stable = [release for release in self.releases if release.is_stable]
        return max(stable, key=lambda release: must_parse(release.name))

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every entry with the name of its table."""
        for name, table in self.tables.items():
            for entry in table.entries.values():
                yield name, entry
