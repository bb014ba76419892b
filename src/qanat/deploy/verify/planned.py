"""What a plan says of the service that it describes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qanat.core.errors import ConfigError
from qanat.deploy.plan.files import decode_plan
from qanat.deploy.plan.model import Plan

PLAN_FILE = "plan.yaml"


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


def read_planned(path: Path) -> Planned:
    """The expectations in a plan, or in a rendered folder that holds one.

    Raises:
        ConfigError: it cannot be read, or is no plan.
    """
    file = path / PLAN_FILE if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise ConfigError(f"--plan {file}: cannot be read: {reason}", param="--plan") from None
    return expected_of(decode_plan(text, str(file)))


def expected_of(plan: Plan) -> Planned:
    """The expectations of a plan."""
    name = plan.proxy.node if plan.proxy is not None else _answering(plan)
    address = next((node.address for node in plan.nodes if node.name == name), "")
    port = plan.proxy.port if plan.proxy is not None else plan.port
    host = f"[{address}]" if ":" in address else address
    windows = [role.flags.get("max-model-len") for role in plan.roles]
    window = next((value for value in windows if isinstance(value, int)), plan.wish.max_model_len)
    return Planned(
        url=f"http://{host}:{port}" if address else None,
        model=plan.served_model_name,
        max_model_len=window,
        concurrency=plan.wish.concurrency,
    )


def _answering(plan: Plan) -> str:
    return next((node.name for node in plan.nodes if node.instance == 0 and node.rank == 0), "")
