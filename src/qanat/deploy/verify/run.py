"""Runs checks in their order and says what each saw."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.kinds.symptoms import ServiceSymptom
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.verify import checks as _registered  # noqa: F401  registers the checks
from qanat.deploy.verify.check import CHECKS, Check, Context, Skip, Status
from qanat.deploy.verify.replies import MisfitError, UsageError
from qanat.deploy.verify.service import Fault


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a check.

    Attributes:
        check: its name.
        title: what it asked.
        status: warn and fail come with a symptom.
        seconds: that it took.
        seen: what the service did.
        symptom: its name in the knowledge base; empty if all is well.
        meaning: what that usually means.
        advice: what to do.
        source: where that is known from.
    """

    check: str
    title: str
    status: Status
    seconds: float
    seen: str
    symptom: str = ""
    meaning: str = ""
    advice: str = ""
    source: str = ""


def symptoms() -> Mapping[str, ServiceSymptom]:
    """All symptoms by name."""
    entries: Mapping[str, ServiceSymptom] = load_knowledge().tables["service_symptoms"].entries
    return entries


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> list[Check]:
    """The checks to run: those in `only` and what they need, or all; without those in `skip`.

    Raises:
        ConfigError: a name that no check has, or nothing is left.
    """
    for flag, names in (("--only", only), ("--skip", skip)):
        for name in names:
            if name not in CHECKS:
                raise ConfigError(
                    f"{flag}: there is no check {name}; there are: {', '.join(CHECKS)}", param=flag
                )
    wanted = set(only or CHECKS)
    for check in reversed(CHECKS.values()):  # what is needed stands before what needs it
        if check.name in wanted:
            wanted.update(check.needs)
    left = [check for check in CHECKS.values() if check.name in wanted and check.name not in skip]
    if not left:
        raise ConfigError("--only and --skip together leave no check.", param="--skip")
    return left


async def run_checks(context: Context, checks: Collection[Check]) -> AsyncIterator[Outcome]:
    """The outcome of every check as soon as it is there.

    A check whose needs failed is skipped. One that was left out by the caller is taken to be well.
    """
    context.model = context.model or context.settings.model or ""
    context.max_model_len = context.max_model_len or context.settings.max_model_len
    known = symptoms()
    statuses: dict[str, Status] = {}
    for check in checks:
        missing = [name for name in check.needs if statuses.get(name, "ok") in ("fail", "skipped")]
        if missing:
            outcome = Outcome(
                check=check.name, title=check.title, status="skipped", seconds=0.0, seen=f"needs {missing[0]}"
            )
        else:
            outcome = await _run(check, context, known)
        statuses[check.name] = outcome.status
        yield outcome


async def _run(check: Check, context: Context, known: Mapping[str, ServiceSymptom]) -> Outcome:
    started = time.monotonic()
    status: Status = "ok"
    symptom = None
    try:
        seen = await check.run(context)
    except Skip as skip:
        status, seen = "skipped", str(skip)
    except Fault as fault:
        symptom, seen = known[fault.symptom], fault.seen
    except UsageError as error:
        symptom, seen = known["wrong_usage"], str(error)
    except MisfitError as error:
        symptom, seen = known["misshapen_answer"], str(error)
    outcome = {
        "check": check.name,
        "title": check.title,
        "seconds": time.monotonic() - started,
        "seen": context.service.exchange.hide(seen),
    }
    if symptom is None:
        return Outcome(**outcome, status=status)  # type: ignore[arg-type]
    return Outcome(
        **outcome,  # type: ignore[arg-type]
        status=symptom.level,
        symptom=symptom.name,
        meaning=symptom.meaning,
        advice=symptom.advice,
        source=symptom.source,
    )
