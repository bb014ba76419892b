"""The README: equal content in both languages, commands that exist, values that stay what they are."""

from __future__ import annotations

import contextlib
import re
import shlex
import string
import subprocess
from pathlib import Path
from typing import Literal, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qanat.cli.main import main
from qanat.deploy.knowledge.entry import Confidence
from qanat.deploy.markdown_text import code, escaped, table
from qanat.deploy.plan.files import encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.wish import Topology
from qanat.deploy.render.folder import render
from qanat.deploy.render.model import Language, RenderOptions
from qanat.deploy.render.proxy import ROUTER
from qanat.deploy.render.readme_texts import all_sentences, texts_of
from tests.deploy.plan.example_plans import PLANS, disaggregated, single_node, two_nodes
from tests.deploy.render.test_checks import SHELLCHECK

LANGUAGES: tuple[Language, ...] = get_args(Language)
BLOCK = re.compile(r"^ *```bash\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def readme(plan: Plan, language: Language = "en", install: Literal["image", "source"] = "image") -> str:
    return render(plan, RenderOptions(language=language, install=install))["README.md"].text


def commands(text: str) -> list[str]:
    return [line.strip() for block in BLOCK.findall(text) for line in block.splitlines()]


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_both_languages_have_every_sentence_with_the_same_values() -> None:
    for name, sentences in all_sentences().items():
        assert set(sentences) == set(LANGUAGES), name
        assert fields(sentences["en"]) == fields(sentences["zh"]), name
        assert sentences["en"].count(" | ") == sentences["zh"].count(" | "), name
        assert bool(sentences["en"]) == bool(sentences["zh"]), name
        if name.startswith("heading_"):
            assert sentences["en"] != sentences["zh"], name


def test_every_sentence_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    used: set[str] = set()
    texts = type(texts_of("en"))
    say, get, head = texts.__call__, texts.get, texts.head
    monkeypatch.setattr(
        texts, "__call__", lambda self, name, /, **values: used.add(name) or say(self, name, **values)
    )
    monkeypatch.setattr(texts, "get", lambda self, name, default: used.add(name) or get(self, name, default))
    monkeypatch.setattr(texts, "head", lambda self, name: used.add(name) or head(self, name))
    for plan in [build() for build in PLANS.values()] + [unusual()]:
        for install in ("image", "source"):
            readme(plan, install=install)
            readme(msgspec.structs.replace(plan, driver="", cann=""), install=install)
    for topology in Topology:
        readme(msgspec.structs.replace(two_nodes(), topology=topology))
    left = set(all_sentences()) - used
    assert left == {name for name in left if name.startswith(("memory_", "confidence_"))}


def unusual() -> Plan:
    """A model that nobody has published anything about, and the router in front of a pair."""
    plan = disaggregated()
    assert plan.proxy is not None
    proxy = msgspec.structs.replace(plan.proxy, program=ROUTER)
    choices = (msgspec.structs.replace(plan.choices[0], role="decode"),)
    return msgspec.structs.replace(
        plan, choices=choices, proxy=proxy, model="Unknown-1B", repository="somebody/Unknown-1B"
    )


@pytest.mark.parametrize("confidence", get_args(Confidence))
def test_every_confidence_has_words(confidence: str) -> None:
    assert f"confidence_{confidence}" in all_sentences()


@pytest.mark.parametrize("install", ["image", "source"])
@pytest.mark.parametrize("name", PLANS)
def test_languages_have_the_same_commands_tables_and_values(
    name: str, install: Literal["image", "source"]
) -> None:
    english, chinese = (readme(PLANS[name](), language, install) for language in LANGUAGES)
    assert commands(english) == commands(chinese)
    assert english.count("\n| ") == chinese.count("\n| ")
    assert len(re.findall(r"^## ", english, re.MULTILINE)) == len(re.findall(r"^## ", chinese, re.MULTILINE))
    assert sorted(re.findall(r"`[^`\n]+`", english)) == sorted(re.findall(r"`[^`\n]+`", chinese))
    assert re.search("[\u4e00-\u9fff]", chinese) and not re.search("[\u4e00-\u9fff]", english)


@pytest.mark.parametrize("install", ["image", "source"])
@pytest.mark.parametrize("name", PLANS)
def test_files_that_commands_name_are_in_the_folder(name: str, install: Literal["image", "source"]) -> None:
    files = render(PLANS[name](), RenderOptions(install=install))
    made_later = ("logs/", "results/", "new-plan.yaml", "wish.yaml")
    named = 0
    for command in commands(files["README.md"].text):
        for word in shlex.split(command.strip("()").replace(";", " "), comments=True):
            if re.fullmatch(r"[\w./-]+\.(sh|yaml|json|log)", word) and not word.startswith(made_later):
                named += 1
                assert word in files, command
    assert named > 5


@pytest.mark.parametrize("name", PLANS)
def test_commands_of_qanat_have_flags_that_exist(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands(readme(PLANS[name]())):
        match = re.search(r"qanat deploy (\w+)([^)]*)", command)
        if match is None:
            continue
        with contextlib.suppress(SystemExit):
            assert main(["deploy", match[1], "--help"]) == 0
        shown = capsys.readouterr().out
        for flag in re.findall(r"--[a-z-]+", match[2]):
            assert flag in shown, command


@pytest.mark.parametrize("name", PLANS)
def test_commands_pass_shellcheck(name: str, tmp_path: Path) -> None:
    assert SHELLCHECK is not None
    script = tmp_path / "all.sh"
    script.write_text(
        "#!/usr/bin/env bash\n" + "\n".join(commands(readme(PLANS[name]()))) + "\n", encoding="utf-8"
    )
    # env.sh is read in a subshell on purpose: its names are nobody else's business.
    command = [SHELLCHECK, "--exclude=SC1091,SC2030,SC2031,SC2154", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PLANS)
def test_it_tells_what_the_plan_holds(name: str) -> None:
    plan = PLANS[name]()
    text = readme(plan)
    for node in plan.nodes:
        assert f"| `{node.name}` |" in text
        assert f"nodes/{node.name}/container.sh" in text
    for choice in plan.choices:
        assert f"| `{choice.what}` | `{choice.value}` | {escaped(choice.reason)} |" in text
    for warning in plan.warnings:
        assert f"- {escaped(warning)}" in text
    for role in plan.roles:
        assert text.count(f"Role {role.name}: ") == 1
        for item in role.memory.items:
            assert f"| {item.name} | {item.size_bytes / 2**30:.1f} |" in text
    assert plan.image in text and plan.driver in text
    assert "about 410 GB" in text


def test_open_settings_of_env_sh_are_named() -> None:
    assert "Still empty: `ADDRESS_SERVER_0`, `INTERFACE_SERVER_0`, `ADDRESS_SERVER_1`" in readme(two_nodes())
    assert "Still empty" not in readme(single_node())


def test_ports_between_nodes_are_those_of_the_plan() -> None:
    text = readme(disaggregated())
    assert "36100 to 36115 (cache transfer, prefill), 36200 to 36215 (cache transfer, decode)" in text
    assert "13389 (data parallel control), 60000 to 60015 (HCCL)" in readme(two_nodes())
    assert "on these ports as well" not in readme(single_node())


def test_it_is_the_same_every_time() -> None:
    for build in PLANS.values():
        assert readme(build()) == readme(build())


NASTY = "a|b `c` *d* _e_ <script> [x](y) # \\| ``` $z & ~f~"


def test_nothing_in_a_value_is_markup() -> None:
    plan = single_node()
    choice = msgspec.structs.replace(
        plan.choices[0], value=NASTY, reason=NASTY, changes_if=f"one\n\ntwo {NASTY}"
    )
    text = readme(msgspec.structs.replace(plan, choices=(choice,), warnings=(f"{NASTY}\n# no heading",)))
    assert "<script>" not in re.sub(r"`+[^\n]*?`+", "", text)
    assert "\n# no heading" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("| `--tensor-parallel-size`")]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 7


@given(st.text(min_size=1))
def test_code_ends_where_the_value_ends(value: str) -> None:
    line = " ".join(value.split())
    shown = code(value)
    if not line:
        assert shown == ""
        return
    fence = re.match(r"`+", shown)
    assert fence is not None and shown.endswith(fence[0])
    inner = shown[len(fence[0]) : -len(fence[0])]
    assert inner in (line, f" {line} ")
    assert all(len(run) < len(fence[0]) for run in re.findall(r"`+", inner))


@given(st.lists(st.lists(st.text(alphabet="ab|\\`* \n<", max_size=6), min_size=2, max_size=2), max_size=4))
def test_tables_keep_their_columns(rows: list[list[str]]) -> None:
    text = table(["x", "y"], [[escaped(cell) for cell in row] for row in rows])
    for line in text.splitlines():
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == 3


def test_the_command_line_chooses_the_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(encode_plan(two_nodes()), encoding="utf-8")
    for language in LANGUAGES:
        folder = tmp_path / language
        assert main(["deploy", "render", str(plan), str(folder), "--language", language]) == 0
        assert (folder / "README.md").read_text(encoding="utf-8") == readme(two_nodes(), language)
        assert (folder / "compose" / "server-1.yaml").exists() and (
            folder / "kubernetes" / "server-0.yaml"
        ).exists()
    assert "README.md" in capsys.readouterr().out
