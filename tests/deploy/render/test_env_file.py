from __future__ import annotations

import subprocess

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from qanat.deploy.render.env_file import EnvSetting, env_text, keep_edits
from qanat.deploy.render.model import RenderOptions
from qanat.deploy.rendered.env_values import read_values
from tests.deploy.plan.example_plans import single_node, two_nodes

OPTIONS = RenderOptions()
texts = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\n\r"))


def test_every_node_has_an_address() -> None:
    values = read_values(env_text(two_nodes(), OPTIONS))
    names = ("ADDRESS_SERVER_0", "INTERFACE_SERVER_0", "ADDRESS_SERVER_1", "INTERFACE_SERVER_1")
    assert {name: values[name] for name in names} == dict.fromkeys(names, "")


def test_one_node_alone_is_reached_by_loopback() -> None:
    values = read_values(env_text(single_node(), OPTIONS))
    assert values["ADDRESS_SERVER_0"] == "127.0.0.1"
    assert "INTERFACE_SERVER_0" not in values
    assert values["MODEL_PATH"] == "/data/models/Qwen3.5-397B-A17B-w8a8-mtp"


def test_edits_stay_and_new_variables_are_added() -> None:
    edited = env_text(two_nodes(), OPTIONS).replace(
        "ADDRESS_SERVER_0=''", "ADDRESS_SERVER_0=192.0.2.7  # rack 3"
    )
    plan = two_nodes()
    third = msgspec.structs.replace(plan.nodes[1], name="server-2", rank=2)
    plan = msgspec.structs.replace(plan, nodes=(*plan.nodes, third))
    text, notes = keep_edits(edited, env_text(plan, OPTIONS))
    values = read_values(text)
    assert values["ADDRESS_SERVER_0"] == "192.0.2.7"
    assert values["ADDRESS_SERVER_2"] == ""
    assert "# rack 3" in text
    assert notes == ["ADDRESS_SERVER_2 was added", "INTERFACE_SERVER_2 was added"]
    assert keep_edits(text, env_text(plan, OPTIONS)) == (text, [])


def test_a_plan_that_says_otherwise_is_told() -> None:
    edited = env_text(single_node(), OPTIONS).replace("READY_TIMEOUT_S=3600", "READY_TIMEOUT_S=60")
    text, notes = keep_edits(edited, env_text(single_node(), OPTIONS))
    assert text == edited
    assert notes == ["READY_TIMEOUT_S stays 60; the plan says 3600"]


@settings(max_examples=60, deadline=None)
@given(texts)
def test_bash_and_programs_read_the_same_value(value: str) -> None:
    text = EnvSetting("NAME", value, "what it is").text
    script = text + "printf '%s' \"$NAME\""
    assert subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout.decode() == value
    assert read_values(text) == {"NAME": value}
