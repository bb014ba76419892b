"""Reads the knowledge base: every file of `data/`, strictly, once per process."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal

import msgspec
import yaml

from qanat.deploy.knowledge.base import EntryT, Knowledge, Table
from qanat.deploy.knowledge.entry import Entry
from qanat.deploy.knowledge.kinds.chips import Chip, DeviceName, DriverSupport
from qanat.deploy.knowledge.kinds.hosts import HostCheck, HostSetting
from qanat.deploy.knowledge.kinds.logs import LogQuotation, LogSignature, LogStage, Metric
from qanat.deploy.knowledge.kinds.models import DraftModel, ModelFacts, QuantisedType, WeightFormat, Weights
from qanat.deploy.knowledge.kinds.numbers import Baseline, Communicator, Estimate, Threshold
from qanat.deploy.knowledge.kinds.practices import Practice
from qanat.deploy.knowledge.kinds.releases import KnownPath, Release, SourcePackage, SourceTree
from qanat.deploy.knowledge.kinds.rules import Rule
from qanat.deploy.knowledge.kinds.settings import (
    ConfigKey,
    Conflict,
    Connector,
    Endpoint,
    EngineVariable,
    EnvVar,
    Flag,
    Parser,
)
from qanat.deploy.knowledge.kinds.symptoms import Issue, ServiceSymptom
from qanat.deploy.knowledge.versions import Timeline, must_parse

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
    "engine_variable": EngineVariable,
    "env_var": EnvVar,
    "estimate": Estimate,
    "endpoint": Endpoint,
    "flag": Flag,
    "issue": Issue,
    "host_check": HostCheck,
    "host_setting": HostSetting,
    "known_path": KnownPath,
    "log_quotation": LogQuotation,
    "log_signature": LogSignature,
    "log_stage": LogStage,
    "metric": Metric,
    "model": ModelFacts,
    "parser": Parser,
    "practice": Practice,
    "quantised_type": QuantisedType,
    "release": Release,
    "rule": Rule,
    "source_package": SourcePackage,
    "source_tree": SourceTree,
    "service_symptom": ServiceSymptom,
    "weight_format": WeightFormat,
    "weights": Weights,
    "threshold": Threshold,
}


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
