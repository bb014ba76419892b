"""Reads the knowledge base: every file of `data/`, strictly, once per process."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Generic, Literal, TypeVar

import msgspec
import yaml

from qanat.deploy.knowledge.host_model import (
    DeviceName,
    DriverSupport,
    HostCheck,
    HostSetting,
    QuantisedType,
    Threshold,
)
from qanat.deploy.knowledge.log_model import Issue, LogSignature, LogStage, Metric
from qanat.deploy.knowledge.model import (
    Baseline,
    Chip,
    Communicator,
    ConfigKey,
    Conflict,
    Connector,
    Entry,
    EnvVar,
    Estimate,
    Flag,
    KnownPath,
    Lifetime,
    ModelFacts,
    Parser,
    Release,
    Rule,
    SourceTree,
    WeightFormat,
    Weights,
)
from qanat.deploy.knowledge.practices import DraftModel, Practice
from qanat.deploy.knowledge.symptoms import ServiceSymptom
from qanat.deploy.knowledge.versions import Presence, Timeline, Version, must_parse

_KINDS: dict[str, type[Entry]] = {
    "baseline": Baseline,
    "chip": Chip,
    "communicator": Communicator,
    "config_key": ConfigKey,
    "conflict": Conflict,
    "connector": Connector,
    "device_name": DeviceName,
    "driver": DriverSupport,
    "draft_model": DraftModel,
    "env_var": EnvVar,
    "estimate": Estimate,
    "flag": Flag,
    "issue": Issue,
    "host_check": HostCheck,
    "host_setting": HostSetting,
    "known_path": KnownPath,
    "log_signature": LogSignature,
    "log_stage": LogStage,
    "metric": Metric,
    "model": ModelFacts,
    "parser": Parser,
    "practice": Practice,
    "quantised_type": QuantisedType,
    "release": Release,
    "rule": Rule,
    "source_tree": SourceTree,
    "service_symptom": ServiceSymptom,
    "weight_format": WeightFormat,
    "weights": Weights,
    "threshold": Threshold,
}
EntryT = TypeVar("EntryT", bound=Entry)


class KnowledgeError(Exception):
    """A file of the knowledge base is not as its schema says; the message names the file and the entry."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of `data/`: what all its entries share, and the entries."""

    about: str
    kind: str
    source: str
    confidence: str
    entries: list[dict[str, Any]]
    samples: list[str] = msgspec.field(default_factory=list)
    versions: Literal["vllm", "vllm-ascend"] = "vllm-ascend"


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


@functools.cache
def load_knowledge() -> Knowledge:
    """The knowledge base of the package.

    Raises:
        KnowledgeError: a file is not as its schema says.
    """
    files: dict[str, str] = {}
    for file in resources.files("qanat.deploy.knowledge").joinpath("data").iterdir():
        if file.name.endswith((".yaml", ".json")):
            files[file.name] = file.read_text(encoding="utf-8")
    return build_knowledge(files)


def build_knowledge(files: Mapping[str, str]) -> Knowledge:
    """Puts the contents of data files together; the keys are file names.

    Raises:
        KnowledgeError: a file is not as its schema says, or two entries of one kind share a name.
    """
    tables = {name.rsplit(".", 1)[0]: _read_table(name, files[name]) for name in sorted(files)}
    rules: dict[str, Rule] = {}
    for rule in _all(tables, Rule):
        if rule.name in rules:
            raise KnowledgeError(f"rule {rule.name} is described twice")
        rules[rule.name] = rule
    releases = sorted(_all(tables, Release), key=lambda release: must_parse(release.name))
    return Knowledge(
        tables=tables,
        rules=rules,
        releases=tuple(releases),
        models=tuple(_all(tables, ModelFacts)),
        chips=tuple(_all(tables, Chip)),
        signatures=tuple(_all(tables, LogSignature)),
        conflicts=tuple(_all(tables, Conflict)),
        json_flags=frozenset(key.flag for key in _all(tables, ConfigKey)),
    )


def _all(tables: Mapping[str, Table[Any]], kind: type[EntryT]) -> list[EntryT]:
    return [entry for table in tables.values() for entry in table.entries.values() if isinstance(entry, kind)]


def _read_table(name: str, text: str) -> Table[Any]:
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        raw = json.loads(text) if name.endswith(".json") else yaml.load(text, Loader=loader)
        file = msgspec.convert(raw, _File)
        kind = _KINDS[file.kind]
    except (ValueError, yaml.YAMLError, msgspec.ValidationError, KeyError) as error:
        raise KnowledgeError(f"{name}: {error}") from error
    entries: dict[str, Entry] = {}
    for number, fields in enumerate(file.entries, 1):
        complete = {"source": file.source, "confidence": file.confidence, **fields}
        try:
            entry = msgspec.convert(complete, kind)
            _check_versions(entry)
        except (ValueError, msgspec.ValidationError) as error:
            raise KnowledgeError(f"{name}: entry {number} ({fields.get('name', '?')}): {error}") from error
        key = f"{entry.flag} {entry.name}" if isinstance(entry, ConfigKey) else entry.name
        if key in entries:
            raise KnowledgeError(f"{name}: entry {number}: {entry.name} stands twice")
        entries[key] = entry
    timeline = Timeline(file.samples) if file.samples else None
    return Table(name.rsplit(".", 1)[0], file.about, entries, timeline, file.versions == "vllm")


def _check_versions(entry: Entry) -> None:
    for field_name in ("since", "until", "hybrid_since", "first_release"):
        text = getattr(entry, field_name, None)
        if text is not None:
            must_parse(text)
    since, until = getattr(entry, "since", None), getattr(entry, "until", None)
    if since and until and must_parse(until) < must_parse(since):
        raise ValueError(f"it ends ({until}) before it begins ({since})")
