"""Any wish gets a plan or a clear refusal, never another error; what a refusal proposes can be planned."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import HealthCheck, given, settings

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.rules import Consequence, Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.plan.commands import arguments_of
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.files import decode_plan, encode_plan
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.planner import plan_once
from qanat.deploy.plan.report import text_report
from qanat.deploy.plan.script import documents
from qanat.deploy.plan.wish import Wish
from tests.deploy.plan.wishes import KNOWLEDGE, any_wishes, few_wishes

STOPS = Consequence.START_FAILS


def check_sizes(plan: Plan) -> None:
    """What must hold for every plan, by the rules of vLLM and vllm-ascend."""
    model = next(one for one in KNOWLEDGE.models if one.name == plan.model)
    for role in plan.roles:
        tp, dp, flags = role.tensor_parallel_size, role.data_parallel_size, role.flags
        assert model.num_query_heads % tp == 0
        assert not model.is_moe or model.num_experts % (tp * dp) == 0
        assert role.memory.longest_context >= flags["max-model-len"]
        assert role.memory.needed_pool_bytes <= role.memory.pool_bytes
        assert role.memory.head_room_bytes >= 0
        assert flags["max-num-batched-tokens"] >= flags["max-num-seqs"]
        assert all(size <= flags["max-num-batched-tokens"] for size in role.capture_sizes)
        rows = 1 + flags.get("speculative-config", {}).get("num_speculative_tokens", 0)
        if role.name != "prefill":
            assert flags["max-num-batched-tokens"] >= flags["max-num-seqs"] * rows
        config = flags.get("compilation-config", {"cudagraph_mode": "NONE"})
        assert role.capture_sizes or config.get("cudagraph_mode") == "NONE"
        assert plan.chip != "310P" or flags["dtype"] == "float16"
        nodes = [node for node in plan.nodes if node.role == role.name and node.instance == 0]
        assert sum(len(node.npus) for node in nodes) == tp * dp
    if plan.proxy is not None:
        assert plan.role("prefill").tensor_parallel_size % plan.role("decode").tensor_parallel_size == 0


def check_wish(wish: Wish) -> None:
    """A wish is planned, and the plan is right, or it is refused with a reason."""
    try:
        plan = plan_once(wish, KNOWLEDGE)
    except ImpossibleWish as refusal:
        assert refusal.why
        return
    check_sizes(plan)
    assert decode_plan(encode_plan(plan), "plan.yaml") == plan
    assert plan.model in text_report(plan)
    found = [one for one in lint(documents(plan), plan.image) if one.severity is not Severity.INFO]
    assert not [one.message for one in found if one.severity is Severity.ERROR or one.consequence is STOPS]
    assert all(any(one.message in warning for warning in plan.warnings) for one in found)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(few_wishes() | few_wishes() | few_wishes() | any_wishes())
def test_any_wish_is_planned_or_refused(wish: Wish) -> None:
    check_wish(wish)


@pytest.mark.slow
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(few_wishes() | few_wishes() | few_wishes() | any_wishes())
def test_very_many_wishes_are_planned_or_refused(wish: Wish) -> None:
    check_wish(wish)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(few_wishes() | any_wishes())
def test_the_command_line_of_a_wish_asks_for_that_wish(wish: Wish) -> None:
    from qanat.cli.deploy_actions.plan import COMMAND, PlanFlags, read_wish
    from qanat.cli.reading import read_action

    words = shlex.split(shlex.join(arguments_of(wish)))
    try:
        flags, rest = read_action(COMMAND, PlanFlags, words)
        assert not rest
        assert read_wish(flags) == wish
    except ConfigError:
        assert "" in wish.overrides
