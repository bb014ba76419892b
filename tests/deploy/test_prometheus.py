"""The text format of /metrics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.diagnose.metrics import Metrics
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.prometheus import quantile, read_exposition

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,10}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Zl", "Zp", "Cc")), max_size=10)


@given(NAMES, st.dictionaries(LABEL_NAMES, TEXTS, max_size=3), st.floats())
def test_what_is_written_reads_back(name: str, labels: dict[str, str], value: float) -> None:
    def escape(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    written = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
    line = f"{name}{{{written}}} {value!r}" if labels else f"{name} {value!r}"
    exposition = read_exposition(f"# HELP x y\n{line}\n")
    assert exposition.num_faults == 0, line
    (sample,) = exposition.all(name)
    assert sample.labels == labels
    assert sample.value == value or math.isnan(value)


@given(st.text(max_size=80))
def test_any_text_is_read_or_told(text: str) -> None:
    exposition = read_exposition(text)
    assert exposition.num_faults >= len(exposition.faults)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('a{b="c"} 1.5 1700000000000', 1.5),
        ('a{b="c",} 2', 2),
        ("a{} 3", 3),
        ('a { b = "c" } 4', 4),
        ("a\t5", 5),
        ("a +Inf", math.inf),
        ('a_bucket{le="1.0"} 6 # {trace_id="x"} 0.5 1700000000.0', 6),
        ('a{b="}, \\"c"} 7', 7),
    ],
)
def test_forms_that_servers_write(line: str, value: float) -> None:
    exposition = read_exposition(line)
    assert exposition.num_faults == 0
    ((sample,),) = exposition.samples.values()
    assert sample.value == value


@pytest.mark.parametrize(
    "line", ["a", "a{", 'a{b="c"', 'a{b="c"}', "a{b=c} 1", "1a 2", "a b c d", "a1", "a 1_0", "a{b} 1"]
)
def test_what_is_no_sample_is_told(line: str) -> None:
    exposition = read_exposition(line)
    assert exposition.num_faults == 1 and not exposition.samples


def test_a_quantile_is_estimated_inside_its_bucket() -> None:
    buckets = {1.0: 0.0, 2.0: 10.0, 4.0: 20.0, math.inf: 20.0}
    assert quantile(buckets, 0.25) == 1.5
    assert quantile(buckets, 0.75) == 3.0
    assert quantile({1.0: 0.0, math.inf: 5.0}, 0.5) == 1.0
    assert quantile({}, 0.5) is None and quantile({1.0: 0.0}, 0.5) is None


def test_every_metric_is_read_under_all_its_names() -> None:
    for name, entry in load_knowledge().tables["metrics"].entries.items():
        for known in entry.names:
            if entry.kind == "counter":
                assert Metrics(read_exposition(f"{known}_total 3\n")).counter(name) == 3
            elif entry.kind == "gauge":
                assert Metrics(read_exposition(f"{known} 3\n")).gauge(name) == 3
            elif entry.kind == "histogram":
                text = f'{known}_count 2\n{known}_sum 6\n{known}_bucket{{le="+Inf"}} 2\n'
                histogram = Metrics(read_exposition(text)).histogram(name)
                assert histogram is not None and histogram.mean == 3
            else:
                assert Metrics(read_exposition(f'{known}{{a="b"}} 1\n')).label(name, "a") == "b"
