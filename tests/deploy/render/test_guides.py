"""Every deployment of the guides, planned and rendered: good bash, clean for the linter, flags that exist."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import RenderOptions
from tests.deploy.plan.wishes import GUIDES
from tests.deploy.render.test_linted import described, grave
from tests.deploy.render.test_scripts import check_flags, check_scripts

QUICK = ("35B on 4 cards of A3", "397B apart on two A3")
"""Guides that stand for all in the quick run: one node alone, and prefill and decode apart."""
SOME_QUICK = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in GUIDES]


@functools.cache
def planned(name: str) -> Plan:
    return plan(GUIDES[name])


@pytest.mark.parametrize("name", SOME_QUICK)
def test_scripts_are_good_bash(name: str, tmp_path: Path) -> None:
    check_scripts(render(planned(name), RenderOptions()), tmp_path)


@pytest.mark.parametrize("name", GUIDES)
def test_the_linter_finds_nothing(name: str) -> None:
    assert described(grave(render(planned(name), RenderOptions()))) == []


@pytest.mark.parametrize("name", SOME_QUICK)
def test_the_linter_finds_nothing_in_installs_from_source(name: str) -> None:
    assert described(grave(render(planned(name), RenderOptions(install="source")))) == []


@pytest.mark.parametrize("name", GUIDES)
def test_engines_are_given_flags_that_their_version_has(name: str) -> None:
    check_flags(planned(name), render(planned(name), RenderOptions()))


@pytest.mark.parametrize("name", SOME_QUICK)
def test_words_in_chinese_lint_clean_too(name: str) -> None:
    assert described(grave(render(planned(name), RenderOptions(language="zh")))) == []
