"""How endpoints are written, and what is said of wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.core.errors import ConfigError
from qanat.router.endpoint_text import read_endpoint, read_endpoint_mapping
from qanat.router.model import EngineKind, Role


def test_a_url_alone_is_enough() -> None:
    spec = read_endpoint("http://10.0.0.1:8000", "--endpoint")
    assert (spec.name, spec.host, spec.port, spec.is_tls) == ("10.0.0.1:8000", "10.0.0.1", 8000, False)
    assert spec.make().url == "http://10.0.0.1:8000"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("a:1", "http://a:1"),
        ("http://a", "http://a:80"),
        ("https://a/", "https://a:443"),
        ("http://a:1/v1", "http://a:1"),
        ("http://a:1/team/v1/", "http://a:1/team"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("HTTP://A.example:9", "http://a.example:9"),
    ],
)
def test_urls_are_read_as_people_write_them(text: str, url: str) -> None:
    assert read_endpoint(text, "x").make().url == url


def test_what_is_known_stands_behind_commas() -> None:
    spec = read_endpoint("a:1, role=decode ,weight=2.5,kind=vllm,name=d1,max_model_len=4096,models=x|y", "x")
    assert (spec.role, spec.weight, spec.kind, spec.name) == (Role.DECODE, 2.5, EngineKind.VLLM, "d1")
    assert (spec.max_model_len, spec.models) == (4096, frozenset("xy"))


def test_a_mapping_says_the_same() -> None:
    mapping = {"url": "http://a:1", "role": "decode", "weight": 2, "models": ["x", "y"]}
    assert read_endpoint_mapping(mapping, "x") == read_endpoint("a:1,role=decode,weight=2,models=x|y", "x")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ftp://a:1", "the scheme 'ftp' is neither http nor https"),
        ("http://", "it names no host"),
        ("", "it names no host"),
        ("a:70000", "[Pp]ort"),
        ("a:0", "port 0 is none"),
        ("a:x", "[Pp]ort"),
        ("http://a b:1", "it names no host"),
        ("http://key@a:1", "--engine-key-env"),
        ("http://a:1?x=1", "ends with its path"),
        ("a:1,role=both", "the role 'both' is none of any, prefill, decode"),
        ("a:1,weight=0", "the weight '0'"),
        ("a:1,weight=nan", "the weight 'nan'"),
        ("a:1,weight=heavy", "the weight 'heavy'"),
        ("a:1,kind=trt", "the kind 'trt' is none of qanat, vllm, unknown"),
        ("a:1,size=3", "there is no key 'size'; keys are role, weight"),
        ("a:1,prefill", "'prefill' is not key=value"),
        ("a:1,max_model_len=4k", "max_model_len '4k'"),
        ("a:1,name=a b", "may have no spaces"),
    ],
)
def test_what_is_wrong_is_said_with_the_flag_and_an_example(text: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as wrong:
        read_endpoint(text, "--endpoint")
    assert wrong.value.message.startswith("--endpoint ") and "role=prefill" in wrong.value.message


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        spec = read_endpoint(text, "x")
    except ConfigError:
        return
    assert spec.host and 0 < spec.port < 65_536
    assert read_endpoint(spec.make().url, "x").place == spec.place


@given(
    st.dictionaries(
        st.sampled_from(["url", "role", "weight", "kind", "name", "models", "max_model_len", "other"]),
        st.none() | st.text(max_size=8) | st.integers() | st.floats() | st.lists(st.integers(), max_size=2),
    )
)
def test_any_mapping_is_read_or_refused(values: dict[str, object]) -> None:
    try:
        read_endpoint_mapping({"url": "http://a:1", **values}, "x")
    except ConfigError:
        return
