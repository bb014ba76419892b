"""The dashboard and the alert rules of docs/monitoring name what /metrics really has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.app_server import serving

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "monitoring"
RULES_TEST = ROOT / "tests" / "data" / "monitoring" / "alerts_test.yaml"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
OF_PROMETHEUS = {"up"}
LABELS_OF_PROMETHEUS = {"instance", "job", "le"}
WORDS = {"sum", "by", "rate", "increase", "histogram_quantile", "and", "label_values"}
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

Registry = Mapping[str, set[str]]
"""Labels by the name of a series; empty for one that has no samples yet."""


@pytest.fixture(scope="module")
def registry() -> Registry:
    """What the real application says after one request."""
    with serving() as server:
        server.say(["a", "b", "STOP"])
        server.post("/v1/completions", {"prompt": "abcd", "max_tokens": 2}).raise_for_status()
        server.wait_until_idle()
        text = server.http.get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = set()
        for sample in family.samples:
            if sample.name in found:
                found[sample.name] |= set(sample.labels)
    return found


def strange_names(expression: str, registry: Registry) -> list[str]:
    """Names in an expression that are no series of the registry, no label of the series, and no word of PromQL."""
    text = re.sub(r'"[^"]*"', '""', expression)  # values of labels
    text = re.sub(r"\[[^\]]*\]", "", text)  # ranges
    text = re.sub(r"\b\d+(\.\d+)?\b", "", text)
    series = [name for name in NAME.findall(text) if ":" in name or name in OF_PROMETHEUS]
    labels = set(LABELS_OF_PROMETHEUS)
    for name in series:
        labels |= registry.get(name, set())
    has_no_samples = any(name in registry and not registry[name] for name in series)
    places = re.findall(r"\{([^}]*)\}|\bby \(([^)]*)\)|, (\w+)\)$", text)
    used = {name for groups in places for group in groups for name in NAME.findall(group)}
    wrong = [name for name in series if name not in registry and name not in OF_PROMETHEUS]
    wrong += [] if has_no_samples else sorted(used - labels)
    return wrong + [name for name in NAME.findall(text) if name not in {*WORDS, *series, *used}]


def dashboard() -> dict[str, Any]:
    value: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return value


def dashboard_expressions() -> Iterator[str]:
    board = dashboard()
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]
            assert variable["query"]["query"] == variable["definition"]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_dashboard_asks_for_series_that_there_are(registry: Registry) -> None:
    expressions = list(dashboard_expressions())
    assert len(expressions) > 20
    assert {one: wrong for one in expressions if (wrong := strange_names(one, registry))} == {}


def test_the_rules_ask_for_series_that_there_are(registry: Registry) -> None:
    assert {rule["alert"]: strange_names(rule["expr"], registry) for rule in rules()} == {
        rule["alert"]: [] for rule in rules()
    }


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("sum(vllm:num_requests_runing)", ["vllm:num_requests_runing"]),
        ("rate(vllm:prompt_tokens[5m])", ["vllm:prompt_tokens"]),
        ("vllm:time_to_first_token_seconds", ["vllm:time_to_first_token_seconds"]),
        ('sum by (model) (vllm:num_requests_running{engine="0"})', ["model"]),
        ('vllm:num_requests_running{rank="0"}', ["rank"]),
        ("irate(vllm:prompt_tokens_total[5m])", ["irate"]),
        ("vllm_prompt_tokens_total", ["vllm_prompt_tokens_total"]),
    ],
)
def test_a_wrong_name_is_found(expression: str, wrong: list[str], registry: Registry) -> None:
    assert strange_names(expression, registry) == wrong


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def test_the_dashboard_is_what_grafana_imports() -> None:
    """A name of its own, a known form, and no data source of the machine that it was made on."""
    board = dashboard()
    assert board["schemaVersion"] >= 36, "from there on a data source is an object with type and uid"
    assert board.get("id") is None, "the number is the importing Grafana's to give"
    assert board["title"] and 0 < len(board["uid"]) <= 40
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert (
        variables["datasource"]["type"] == "datasource" and variables["datasource"]["query"] == "prometheus"
    )
    source = {"type": "prometheus", "uid": "${datasource}"}
    asking = [variable for variable in variables.values() if variable["type"] == "query"]
    assert [one["datasource"] for one in (*board["panels"], *asking)] == [source] * (
        len(board["panels"]) + len(asking)
    )
    for panel in board["panels"]:
        assert panel["type"] and panel["title"] and {"x", "y", "w", "h"} <= panel["gridPos"].keys()
        marks = [target["refId"] for target in panel["targets"]]
        assert marks and len(set(marks)) == len(marks)
        assert all(target.get("datasource", source) == source for target in panel["targets"])
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(panel)))
        assert {name for name in used if not name.startswith("__")} <= variables.keys()


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it in this folder; skips the test where it is not installed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool, which comes with Prometheus, is not installed")
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def test_promtool_takes_the_rules_and_they_fire_when_they_should(tmp_path: Path) -> None:
    for path in (FOLDER / "alerts.yaml", RULES_TEST):
        shutil.copy(path, tmp_path)
    for arguments in (("check", "rules", "alerts.yaml"), ("test", "rules", RULES_TEST.name)):
        done = promtool(tmp_path, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def as_rules(expressions: list[str]) -> str:
    """Recording rules, which promtool reads, of queries in which Grafana has filled in its variables."""
    filled = [one.replace("$__rate_interval", "1m").replace("$__range", "1h") for one in expressions]
    queries = [re.sub(r"\$(\w+)", "any", one) for one in filled]
    recorded = [{"record": f"query:{number}", "expr": one} for number, one in enumerate(queries)]
    return yaml.safe_dump({"groups": [{"name": "dashboard", "rules": recorded}]})


def test_promtool_parses_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    (tmp_path / "queries.yaml").write_text(as_rules(queries))
    done = promtool(tmp_path, "check", "rules", "queries.yaml")
    assert done.returncode == 0 and f"{len(queries)} rules found" in done.stdout, done.stdout + done.stderr
    (tmp_path / "wrong.yaml").write_text(as_rules(["sum(rate(vllm:prompt_tokens_total[5m])"]))
    assert promtool(tmp_path, "check", "rules", "wrong.yaml").returncode != 0
