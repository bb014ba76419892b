"""Every practice and draft model is followed by a plan; texts of practices name what exists."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from qanat.cli.deploy_actions.plan import COMMAND
from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.models import DraftModel
from qanat.deploy.knowledge.kinds.practices import Practice
from qanat.deploy.plan import planner
from qanat.deploy.plan.advice import TABLES, Advice
from qanat.deploy.plan.wish import Scenario, Topology, Wish
from tests.deploy.plan.wishes import CHIPS, GUIDES, KNOWLEDGE, MODELS

IMAGES = (None, "0.11.0", "0.13.0", "0.17.0rc1", "0.19.1rc1", "0.22.1rc1", "0.30.0rc1")

LOOKED_UP = (
    "support",
    "--hf-overrides",
    "weights",
    "head-room",
    "unequal blocks",
    "draft download",
    "example proxy",
    "window",
    "drafting",
    "capture limit",
    "fused MC2 over ranks",
)
"""What is looked up without a note in the plan's choices."""


def practices() -> list[Practice]:
    return [one for name in TABLES for one in KNOWLEDGE.tables[name].entries.values()]


def many_wishes() -> Iterator[Wish]:
    yield from GUIDES.values()
    for model, chip, image, scenario in itertools.product(MODELS, CHIPS, IMAGES, Scenario):
        yield Wish(model=model, hardware=chip, image=image, scenario=scenario)
    for chip, topology, scenario in itertools.product(CHIPS, Topology, Scenario):
        for model in ("Qwen3.5-397B-A17B", "Qwen3.6-35B-A3B", "Qwen3-32B"):
            yield Wish(model=model, hardware=chip, topology=topology, nodes=2, scenario=scenario)
            yield Wish(model=model, hardware=chip, topology=topology, nodes=3, scenario=scenario)
    yield Wish(
        model="Qwen3.5-35B-A3B",
        hardware="A3",
        topology=Topology.DISAGGREGATED,
        tensor_parallel_size=8,
        decode_tensor_parallel_size=2,
        proxy="qanat",
    )
    yield Wish(model="Qwen3-32B", hardware="A2", weights="w4a8")
    for model in ("Qwen3-32B", "Qwen3.5-35B-A3B"):
        for image in (None, "0.18.0", "0.11.0"):
            yield Wish(model=model, hardware="A3", max_model_len=10**6, image=image)
    yield Wish(model="Qwen3.5-27B", hardware="A3", speculation="mtp", image="0.17.0rc1")
    yield Wish(model="Qwen3.6-27B", hardware="310P", speculation="mtp")
    yield Wish(model="Qwen3-32B", hardware="310P", speculation="eagle3")
    yield Wish(model="Qwen3.5-2B", hardware="310P", weights="w8a8")


@pytest.fixture(scope="module")
def used() -> set[str]:
    """Names of the practices that any of many plans follows."""
    found: set[str] = set()
    follow = Advice._follow

    def recorded(self: Advice, what: str, practice: Practice, value: object) -> None:
        found.add(practice.name)
        follow(self, what, practice, value)

    patch = pytest.MonkeyPatch()
    patch.setattr(Advice, "_follow", recorded)
    patch.setattr(planner, "checked", lambda plan, wish: plan)
    lookup = Advice.find

    def looked_up(self: Advice, what: str) -> Practice | None:
        practice = lookup(self, what)
        if practice is not None and what in LOOKED_UP:
            found.add(practice.name)
        return practice

    patch.setattr(Advice, "find", looked_up)
    patch.setattr(Advice, "heed", heeding(found, Advice.heed))
    try:
        for wish in many_wishes():
            try:
                planner.plan_once(wish, KNOWLEDGE)
            except ConfigError:
                continue
    finally:
        patch.undo()
    return found


def heeding(found: set[str], heed):  # type: ignore[no-untyped-def]
    def recorded(self: Advice) -> list[Practice]:
        practices: list[Practice] = heed(self)
        found.update(one.name for one in practices)
        return practices

    return recorded


def test_every_practice_is_followed_by_a_plan(used: set[str]) -> None:
    assert sorted({one.name for one in practices()} - used) == []


def test_every_draft_model_can_be_had() -> None:
    for draft in KNOWLEDGE.tables["draft_models"].entries.values():
        assert isinstance(draft, DraftModel)
        wish = Wish(
            model=draft.model, hardware="A3", weights="bf16", speculation="eagle3", draft_model=draft.name
        )
        made = planner.plan_once(wish, KNOWLEDGE)
        assert made.role("server").flags["speculative-config"]["model"] == draft.name
    own = {one.model for one in KNOWLEDGE.tables["draft_models"].entries.values()}
    assert own <= set(MODELS)


def test_practices_name_models_chips_and_flags_that_exist() -> None:
    flags = {one.flag for one in COMMAND.options} | {f"--no-{one.flag[2:]}" for one in COMMAND.options}
    families = {chip.family for chip in KNOWLEDGE.chips}
    for practice in practices():
        assert set(practice.when.models) <= set(MODELS), practice.name
        assert set(practice.when.chips) <= {*CHIPS, *families}, practice.name
        assert set(practice.when.scenarios) <= {one.value for one in Scenario}, practice.name
        assert set(practice.when.topologies) <= {one.value for one in Topology}, practice.name
        named = re.findall(r"--[a-z][a-z0-9-]+", f"{practice.changes_if} {practice.reason}")
        assert set(named) <= flags, practice.name


def test_the_first_practice_that_holds_counts_and_one_always_holds() -> None:
    """For everything but switches that may be absent, the last entry has no condition."""
    by_what: dict[str, list[Practice]] = {}
    for practice in practices():
        by_what.setdefault(practice.what, []).append(practice)
    open_ended = {
        "support",
        "caution",
        "recompute_scheduler_enable",
        "ascend_compilation_config.enable_npugraph_ex",
        "PYTORCH_NPU_ALLOC_CONF",
        "LD_PRELOAD",
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "HCCL_CONNECT_TIMEOUT",
        "VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT",
        "--enable-expert-parallel",
        "enable_fused_mc2",
        "multistream_overlap_shared_expert",
        "kv_port",
        "unequal blocks",
        "window",
        "drafting",
        "capture limit",
        "fused MC2 over ranks",
        "--dtype",
        "--load-format",
        "--mamba-ssm-cache-dtype",
        "ascend_compilation_config.fuse_norm_quant",
    }
    for what, entries in by_what.items():
        last = entries[-1]
        is_general = last.when == type(last.when)() and last.since is None and last.until is None
        assert is_general or what in open_ended, what
