"""Versions: reading, order, ranges, and what is known between samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.deploy.knowledge.versions import (
    Presence,
    Timeline,
    Version,
    is_in_range,
    must_parse,
    parse_image,
    parse_version,
)

ORDERED = [
    "0.11.0rc3",
    "0.11.0",
    "0.13.0",
    "0.18.0rc1",
    "0.18.0rc2",
    "0.18.0",
    "0.23.0",
    "0.23.0.post1",
    "1.0.0",
]
VERSIONS = st.builds(
    Version,
    st.integers(0, 3),
    st.integers(0, 40),
    st.integers(0, 3),
    st.one_of(st.integers(1, 9), st.just(10**6)),
    st.integers(0, 2),
)


def test_candidates_come_before_and_post_releases_after() -> None:
    parsed = [must_parse(text) for text in ORDERED]
    assert sorted(reversed(parsed)) == parsed


@given(VERSIONS)
def test_a_version_reads_back_what_it_prints(version: Version) -> None:
    assert parse_version(str(version)) == version
    assert parse_version(f"v{version}") == version


@given(st.text(max_size=20))
def test_any_text_is_a_version_or_none(text: str) -> None:
    version = parse_version(text)
    assert version is None or parse_version(str(version)) == version
    parse_image(text)


@pytest.mark.parametrize(
    ("text", "version", "suffixes"),
    [
        ("quay.io/ascend/vllm-ascend:v0.18.0rc1-a3", "0.18.0rc1", ("a3",)),
        ("registry:5000/vllm-ascend:v0.23.0-a3-openeuler", "0.23.0", ("a3", "openeuler")),
        ("v0.23.0", "0.23.0", ()),
        ("0.18.0.rc1", "0.18.0rc1", ()),
        ("vllm-ascend:v0.23.0.post1-950dt", "0.23.0.post1", ("950dt",)),
    ],
)
def test_an_image_is_taken_apart(text: str, version: str, suffixes: tuple[str, ...]) -> None:
    tag = parse_image(text)
    assert tag is not None
    assert (str(tag.version), tag.suffixes) == (version, suffixes)


@pytest.mark.parametrize(
    "text", ["", "latest", "vllm-ascend", "v0.23.0-#TODO", "$IMAGE", "v1", "a/lmcache-ascend:v0.3.12"]
)
def test_what_is_no_image_version(text: str) -> None:
    assert parse_image(text) is None


@pytest.mark.parametrize(
    ("version", "since", "until", "expected"),
    [
        ("0.11.0", None, "0.13.0", Presence.PRESENT),
        ("0.12.0", "0.13.0", None, Presence.UNSURE),
        ("0.11.0", "0.13.0", None, Presence.NOT_YET),
        ("0.10.0", "0.13.0", None, Presence.NOT_YET),
        ("0.17.0", None, "0.13.0", Presence.GONE),
        ("0.15.0", None, "0.13.0", Presence.UNSURE),
        ("9.9.9", None, None, Presence.UNSURE),
    ],
)
def test_between_two_samples_nothing_is_claimed(
    version: str, since: str | None, until: str | None, expected: Presence
) -> None:
    timeline = Timeline(["0.11.0", "0.13.0", "0.17.0"])
    assert timeline.presence(must_parse(version), since, until) is expected


@pytest.mark.parametrize(
    ("version", "since", "until", "expected"),
    [
        ("0.13.0rc1", "0.13.0", None, True),
        ("0.18.0rc1", "0.18.0rc2", None, False),
        ("0.23.0.post1", None, "0.23.0", True),
        ("0.23.1", None, "0.23.0", False),
        ("0.12.9", "0.13.0", None, False),
        ("0.18.0rc1", None, "0.18.0rc1", True),
        ("0.18.0", None, "0.18.0rc1", False),
    ],
)
def test_a_plain_end_includes_its_candidates_and_post_releases(
    version: str, since: str | None, until: str | None, expected: bool
) -> None:
    assert is_in_range(must_parse(version), since, until) is expected


def test_what_is_no_version_says_so() -> None:
    with pytest.raises(ValueError, match="expected something like"):
        must_parse("newest")
