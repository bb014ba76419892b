"""Every entry of the knowledge base does something: a rule acts on it, or a page shows it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from qanat.deploy.baselines import Load, Setup, nearest_throughput, published_accuracies
from qanat.deploy.diagnose.docs import render as render_signatures
from qanat.deploy.knowledge.kinds.settings import ConfigKey, Conflict, EnvVar, Flag
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import Presence, Timeline, Version, is_in_range, must_parse
from qanat.deploy.lint.docs import render
from qanat.deploy.lint.engine import lint
from qanat.deploy.lint.files import Versions, view_document
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.documents import read_document

KNOWLEDGE = load_knowledge()
ABSENT = (Presence.GONE, Presence.NOT_YET)


def rules(text: str, version: Version) -> set[str]:
    return {finding.rule_id for finding in lint([read_document("start.sh", text)], str(version))}


def view(text: str, version: str) -> LaunchView:
    document = read_document("start.sh", text)
    parsed = must_parse(version)
    (launch,) = view_document(document, KNOWLEDGE, Versions(document, parsed, parsed)).launches
    return launch


def samples(timeline: Timeline | None) -> tuple[Version, ...]:
    return timeline.samples if timeline else ()


def test_every_flag_is_known_where_it_exists_and_refused_where_it_does_not() -> None:
    for table, command in ((KNOWLEDGE.serve_flags, "serve a"), (KNOWLEDGE.bench_flags, "bench")):
        for version in samples(table.timeline):
            present, absent = [], []
            for name, entry in table.entries.items():
                assert isinstance(entry, Flag)
                gone = table.presence(name, version) in ABSENT
                (absent if gone else present).append(name)
            for names, expected in ((present, False), (absent, True)):
                for group in _by_command(names, command):
                    _check_flags(*group, version, expected)


def _by_command(names: list[str], command: str) -> list[tuple[str, list[str]]]:
    if command != "bench":
        return [(command, names)]
    subcommands = sorted({name.split()[0] for name in names})
    return [
        (f"bench {one}", [name.split()[1] for name in names if name.split()[0] == one]) for one in subcommands
    ]


def _check_flags(command: str, names: list[str], version: Version, is_absent: bool) -> None:
    document = read_document("start.sh", f"vllm {command} {' '.join(f'{name}=1' for name in names)}")
    found = [one for one in lint([document], str(version)) if one.rule_id in ("CLI009", "CLI011", "CLI017")]
    assert {one.rule_id for one in found} <= {"CLI009", "CLI011"}
    assert len(found) == (len(names) if is_absent else 0), (command, version)


def test_every_variable_is_known_and_reported_where_nothing_reads_it() -> None:
    tables = list(KNOWLEDGE.variables())
    for table in tables:
        for version in samples(table.timeline):
            lines, expected = [], 0
            for name, entry in table.entries.items():
                assert isinstance(entry, EnvVar)
                holders = [one for one in tables if name in one.entries]
                expected += all(one.presence(name, version) in ABSENT for one in holders)
                lines.append(f"export {name}=$VALUE")
            found = lint([read_document("env.sh", "\n".join(lines))], str(version))
            assert "ENV023" not in {one.rule_id for one in found}
            assert sum(one.rule_id in ("ENV003", "ENV004") for one in found) == expected, (
                table.file,
                version,
            )


def test_every_key_is_known_in_its_argument() -> None:
    for name in ("json_keys", "additional_config"):
        table = KNOWLEDGE.tables[name]
        for key, entry in table.entries.items():
            assert isinstance(entry, ConfigKey)
            version = next(
                one for one in samples(table.timeline) if table.presence(key, one) is Presence.PRESENT
            )
            path = entry.name.split(".")
            inner = f'{{"{path[-1]}": null}}'
            value = f'{{"{path[0]}": {inner}}}' if len(path) > 1 else inner
            found = rules(f"vllm serve a {entry.flag} '{value}'", version)
            unknown = {
                "CLI003",
                "CLI004",
                "CLI020",
                "CLI021",
                "CLI023",
                "ADD001",
                "ADD002",
                "ADD003",
                "ADD004",
            }
            assert not unknown & found, (key, version)


def test_every_model_is_found_by_its_name() -> None:
    for model in KNOWLEDGE.models:
        for name in (f"Qwen/{model.name}", f"/data/{model.name}-w8a8", model.name.lower()):
            assert view(f"vllm serve {name}", "0.23.0").model == model, name


@pytest.mark.parametrize("chip", KNOWLEDGE.chips, ids=lambda chip: chip.name)
def test_every_chip_is_found_by_its_image_or_its_name(chip) -> None:  # type: ignore[no-untyped-def]
    assert view(f"# on {chip.name}\nvllm serve a", "0.23.0").chip == chip
    if chip.image_suffix:
        text = f"docker run quay.io/ascend/vllm-ascend:v0.23.0-{chip.image_suffix} vllm serve a"
        found = view(text, "0.23.0").chip
        assert found is not None and found.image_suffix == chip.image_suffix


def test_every_release_says_what_its_image_has() -> None:
    for release in KNOWLEDGE.releases:
        assert KNOWLEDGE.release(must_parse(release.name)) == release


def test_every_connector_and_parser_is_known() -> None:
    for name, connector in KNOWLEDGE.connectors.entries.items():
        text = f'vllm serve a --kv-transfer-config \'{{"kv_connector": "{name}", "kv_role": "kv_both"}}\''
        assert view(text, "0.23.0").connector == connector
    for name, parser in KNOWLEDGE.parsers.entries.items():
        fitting = [model.name for model in KNOWLEDGE.models if re.match(parser.models, model.name.lower())]
        other = [model.name for model in KNOWLEDGE.models if model.name not in fitting]
        assert fitting and other
        version = must_parse("0.23.0")
        assert "MOD003" not in rules(f"vllm serve Qwen/{fitting[0]} --tool-call-parser {name}", version)
        assert "MOD003" in rules(f"vllm serve Qwen/{other[0]} --tool-call-parser {name}", version)


def command_of(conflict: Conflict) -> str:
    """A server for which all conditions of a conflict hold."""
    kinds = {condition.model for condition in conflict.conditions}
    words = ["vllm serve", "Qwen/Qwen3-32B" if "dense" in kinds else "Qwen/Qwen3.5-35B-A3B"]
    keys: dict[str, Any] = {}
    for condition in conflict.conditions:
        if condition.role is not None:
            transfer = {"kv_connector": "MooncakeConnectorV1", "kv_role": condition.role, "kv_port": 36010}
            words.append(f"--kv-transfer-config '{json.dumps(transfer)}'")
        value: object = {"on": True, "off": False, "set": {"a": 1}, None: (condition.above or 0) + 1}[
            condition.state
        ]
        setting = condition.setting or ""
        if setting.startswith("--"):
            is_left_out = condition.below is not None or condition.state == "off"
            given = {"on": setting, "set": f"{setting} '{{}}'"}.get(
                condition.state or "", f"{setting} {value}"
            )
            words += [] if is_left_out else [given]
        elif setting:
            *parents, last = setting.split(".")
            inner = keys
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[last] = value
    return " ".join([*words, f"--additional-config '{json.dumps(keys)}'"])


@pytest.mark.parametrize(
    "conflict", KNOWLEDGE.conflicts, ids=lambda conflict: conflict.name.replace(" ", "-")
)
def test_every_conflict_is_found_in_its_versions(conflict: Conflict) -> None:
    for release in KNOWLEDGE.releases:
        version = must_parse(release.name)
        document = read_document("start.sh", command_of(conflict))
        found = [one.message for one in lint([document], str(version)) if one.rule_id == "CON001"]
        is_found = any(conflict.because in message for message in found)
        assert is_found is is_in_range(version, conflict.since, conflict.until), version


def test_every_rule_is_on_the_page_of_rules() -> None:
    page = render()
    for rule in KNOWLEDGE.rules.values():
        assert f"### {rule.name}: " in page


def test_every_log_signature_is_on_the_pages_of_its_rules_and_on_its_own() -> None:
    page = render()
    own = render_signatures()
    for signature in KNOWLEDGE.signatures:
        assert set(signature.rules) <= set(KNOWLEDGE.rules), signature.name
        assert page.count(f"`{signature.pattern}`") == len(signature.rules)
        assert own.count(f"### {signature.name}\n") == 1


def test_every_issue_is_on_the_page_of_signatures_and_names_what_there_is() -> None:
    own = render_signatures()
    signatures = {signature.name: signature for signature in KNOWLEDGE.signatures}
    for name, issue in KNOWLEDGE.tables["issues"].entries.items():
        assert f"- [{name}]({issue.link})" in own
        assert set(issue.rules) <= set(KNOWLEDGE.rules)
        assert all(name in signatures[one].issues for one in issue.signatures), name
    for signature in signatures.values():
        for name in signature.issues:
            assert signature.name in KNOWLEDGE.tables["issues"].entries[name].signatures, signature.name


def test_every_conflict_is_on_the_page_of_its_rule() -> None:
    page = render().replace("\\", "")
    for conflict in KNOWLEDGE.conflicts:
        assert f"- {conflict.because}" in page


def test_every_baseline_is_shown_beside_a_benchmark_of_its_layout() -> None:
    for baseline in KNOWLEDGE.baselines.entries.values():
        setup = Setup(
            repository=baseline.repository,
            weights=baseline.weights,
            chip=baseline.chip or "",
            is_disaggregated=baseline.is_disaggregated,
            tensor_parallel_size=baseline.tensor_parallel_size or 0,
            data_parallel_size=baseline.data_parallel_size or 0,
            num_speculative_tokens=baseline.num_speculative_tokens or 0,
        )
        shared, concurrency = baseline.shared_prefix_percent, baseline.concurrency or 0
        load = Load(baseline.input_tokens or 0, baseline.output_tokens or 0, concurrency, shared)
        accuracies = published_accuracies(setup, KNOWLEDGE)
        nearest = nearest_throughput(setup, load, KNOWLEDGE)
        assert baseline in (accuracies if baseline.measure == "accuracy" else nearest), baseline.name


def test_no_table_is_left_out() -> None:
    covered = {"serve_flags", "bench_flags", "ascend_variables", "vllm_variables", "runtime_variables"}
    covered |= {
        "json_keys",
        "additional_config",
        "models",
        "chips",
        "releases",
        "connectors",
        "endpoints",  # tests/deploy/lint/test_containers.py
        "parsers",
        "conflicts",
        "signatures",
        "signatures_cann",
        "quotations",  # tests/deploy/diagnose/test_crashes.py
        "diagnose_thresholds",  # tests/deploy/diagnose/test_thresholds.py
        "issues",
        "metrics",  # tests/deploy/diagnose/test_prometheus.py
        "stages",  # tests/deploy/diagnose/test_stages.py
        "baselines",
    }
    covered |= {  # tests/deploy/preflight/test_knowledge.py
        "device_names",
        "drivers",
        "host_checks",
        "host_settings",
        "host_thresholds",
        "quantised_types",
    }
    # tests/deploy/sizing/test_knowledge.py
    covered |= {"communicators", "estimates", "weight_formats", "weights"}
    # tests/deploy/plan/test_knowledge.py
    covered |= {"draft_models", "practices_environment", "practices_sizes", "practices_switches"}
    covered |= {"service_symptoms"}  # tests/cli/test_deploy_verify.py
    # tests/deploy/render/test_knowledge.py
    covered |= {"known_paths", "container_thresholds", "source_trees", "source_packages", "engine_variables"}
    others = {name for name in KNOWLEDGE.tables if not name.startswith("rules_")}
    assert others == covered
