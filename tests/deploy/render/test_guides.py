"""Every deployment of the guides, planned and rendered: good bash, clean for the linter, flags that exist."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import Install, RenderOptions
from tests.deploy.plan.wishes import GUIDES
from tests.deploy.render.test_scripts import check_flags, check_scripts, faults


@functools.cache
def planned(name: str) -> Plan:
    return plan(GUIDES[name])


@pytest.mark.parametrize("name", GUIDES)
def test_scripts_are_good_bash(name: str, tmp_path: Path) -> None:
    check_scripts(render(planned(name), RenderOptions()), tmp_path)


@pytest.mark.parametrize("install", ["image", "source"])
@pytest.mark.parametrize("name", GUIDES)
def test_the_linter_finds_nothing(name: str, install: Install) -> None:
    assert faults(render(planned(name), RenderOptions(install=install))) == []


@pytest.mark.parametrize("name", GUIDES)
def test_engines_are_given_flags_that_their_version_has(name: str) -> None:
    check_flags(planned(name), render(planned(name), RenderOptions()))


@pytest.mark.parametrize("name", GUIDES)
def test_words_in_chinese_lint_clean_too(name: str) -> None:
    assert faults(render(planned(name), RenderOptions(language="zh"))) == []
