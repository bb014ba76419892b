"""What a plan says of the service that it describes."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import entry_node, service_port
from qanat.deploy.rendered.inputs import read_plan


@dataclass(frozen=True)
class Planned:
    """Expectations; None where the plan says nothing.

    Attributes:
        url: where clients ask.
        model: name in requests.
        max_model_len: window in tokens.
        concurrency: requests at once.
    """

    url: str | None
    model: str | None
    max_model_len: int | None
    concurrency: int | None


def read_planned(word: str) -> Planned:
    """The expectations in a plan, or in a rendered folder with what was edited in its env.sh.

    Raises:
        ConfigError: it cannot be read, or is no plan.
    """
    return expected_of(read_plan(word))


def expected_of(plan: Plan) -> Planned:
    """The expectations of a plan."""
    address = entry_node(plan).address
    host = f"[{address}]" if ":" in address else address
    windows = [role.flags.get("max-model-len") for role in plan.roles]
    window = next((value for value in windows if isinstance(value, int)), plan.wish.max_model_len)
    return Planned(
        url=f"http://{host}:{service_port(plan)}" if address else None,
        model=plan.served_model_name,
        max_model_len=window,
        concurrency=plan.wish.concurrency,
    )
