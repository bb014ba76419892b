"""The planner: from a wish to a deployment that fits, each choice with its reason, or a refusal with what is near."""

from __future__ import annotations

import msgspec

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.plan.advice import Advice, Situation
from qanat.deploy.plan.arrangement import Arrangement, Group, arrangements
from qanat.deploy.plan.assemble import assemble
from qanat.deploy.plan.checks import (
    check_chip_window,
    check_model_fields,
    check_numbers,
    check_prefix_caching,
    check_quantization,
    check_step,
    check_support,
    check_window,
    checked,
    situation_of,
)
from qanat.deploy.plan.commands import command_line
from qanat.deploy.plan.engines import Engine, Misfit, Task
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.fitting import settle, too_few_nodes
from qanat.deploy.plan.misfits import does_not_fit, unequal, uneven
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.nearby import last_resorts, nearby
from qanat.deploy.plan.overrides import Overrides, read_overrides
from qanat.deploy.plan.shapes import note_shape, shapes
from qanat.deploy.plan.speculation import Speculation, choose_speculation
from qanat.deploy.plan.subject import (
    Subject,
    find_chip,
    find_model,
    published_variants,
    resolve,
    runs_on,
    stated_variant,
)
from qanat.deploy.plan.wish import Wish

MAX_NEAREST = 3


def plan(wish: Wish, knowledge: Knowledge | None = None) -> Plan:
    """The deployment for a wish.

    Args:
        wish: what is there and what is wanted.
        knowledge: facts; the package's unless given.

    Raises:
        ImpossibleWish: it cannot be; says why, in numbers, and names the nearest wishes that can, as command lines.
    """
    known = knowledge or load_knowledge()
    try:
        return plan_once(wish, known)
    except ImpossibleWish as refusal:
        nearest = _nearest(refusal, wish, known)
        raise ImpossibleWish(refusal.why, param=refusal.param, nearest=nearest) from None


def _nearest(refusal: ImpossibleWish, wish: Wish, known: Knowledge) -> tuple[str, ...]:
    """Command lines of wishes that are possible: what the refusal proposes, and more NPUs for what is too large.

    Other machines and much less said come last, where nothing else is possible.
    """
    found: list[str] = []
    groups: list[tuple[Wish, ...]] = [(one,) for one in refusal.candidates]
    groups += nearby(wish, known) if refusal.param is None else ()
    for group in (*groups, *last_resorts(wish, known)):
        is_last = len(found) > 0 and group not in groups
        if is_last or len(found) == MAX_NEAREST:
            break
        possible = next((one for one in group if one != wish and _is_possible(one, known)), None)
        if possible is not None and command_line(possible) not in found:
            found.append(command_line(possible))
    return tuple(found)


def _is_possible(wish: Wish, knowledge: Knowledge) -> bool:
    try:
        plan_once(wish, knowledge)
    except ConfigError:
        return False
    return True


def plan_once(wish: Wish, knowledge: Knowledge) -> Plan:
    """The deployment for a wish, without a look at what is near.

    Raises:
        ImpossibleWish: it cannot be; `candidates` are not tried yet.
    """
    check_numbers(wish)
    overrides = read_overrides(wish, knowledge)
    check_numbers(overrides.wish)
    refusal: ImpossibleWish | None = None
    for variant in _variants(overrides.wish, knowledge):
        try:
            return _plan_variant(wish, overrides, variant, knowledge)
        except ImpossibleWish as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _variants(wish: Wish, knowledge: Knowledge) -> list[str]:
    """Variants of the weights to try, best first.

    Raises:
        ImpossibleWish: the one that is asked for does not run on the chip.
    """
    model, chip = find_model(wish.model, knowledge), find_chip(wish.hardware, knowledge)
    stated = stated_variant(wish, knowledge)
    formats = knowledge.tables["weight_formats"].entries
    if stated is not None:
        if runs_on(stated, chip, knowledge):
            return [stated]
        others = [one for one in formats if runs_on(one, chip, knowledge)]
        candidates = [msgspec.structs.replace(wish, weights=one, model=model.name) for one in (None, *others)]
        why = f"{chip.name} does not compute in {stated}; it does in {', '.join(others)}."
        raise ImpossibleWish(why, param="--weights", candidates=candidates)
    newest = must_parse(knowledge.newest_stable.name)
    situation = Situation(model, "", chip.name, chip.family, wish.scenario.value, "", 1, newest, "server")
    practice = Advice(knowledge, situation).find("weights")
    preferred = str(practice.value).split() if practice is not None else list(formats)
    usable = [one for one in preferred if runs_on(one, chip, knowledge)]
    published = [one for one in usable if one in published_variants(model, knowledge)]
    return published or usable


def _plan_variant(wish: Wish, overrides: Overrides, variant: str, knowledge: Knowledge) -> Plan:
    asked = overrides.wish
    subject = resolve(asked, variant, knowledge)
    check_model_fields(asked, subject)
    check_quantization(asked, subject, overrides.flags.get("quantization"))
    misfits: list[Misfit] = []
    for arrangement in arrangements(asked):
        first = arrangement.groups[0].role
        common = Advice(knowledge, situation_of(subject, arrangement, asked, first))
        check_support(asked, subject, common)
        check_prefix_caching(asked, subject, arrangement.topology, knowledge)
        window = window_of(subject, overrides, common)
        check_window(asked, subject, window, common)
        speculation = choose_speculation(asked, subject, knowledge, common)
        check_step(asked, speculation.num_tokens)
        engines = _engines(overrides, subject, arrangement, speculation, window, common, knowledge)
        if isinstance(engines, Misfit):
            misfits.append(engines)
            continue
        made = assemble(wish, overrides, subject, arrangement, engines, common, knowledge)
        return checked(made, wish)
    raise does_not_fit(asked, subject, misfits)


def window_of(subject: Subject, overrides: Overrides, advice: Advice) -> int:
    """Tokens of the longest context: the model's, stretched by YaRN where an override asks for it; less on some chips.

    Raises:
        ImpossibleWish: the wish asks for more than the chip is good for.
    """
    window = overrides.rope_window or int(subject.model.max_position * overrides.rope_factor)
    practice = advice.find("window")
    if practice is None:
        return window
    check_chip_window(overrides.wish, subject, practice)
    return min(window, int(str(practice.value)))


def _engines(
    overrides: Overrides,
    subject: Subject,
    arrangement: Arrangement,
    speculation: Speculation,
    window: int,
    common: Advice,
    knowledge: Knowledge,
) -> tuple[Engine, ...] | Misfit:
    """An engine for each group, decode first, as prefill follows its size; else the one that does not fit."""
    found: dict[str, Engine] = {}
    for group in reversed(arrangement.groups):
        advice = Advice(knowledge, situation_of(subject, arrangement, overrides.wish, group.role))
        advice.numbers |= common.numbers
        task = Task(
            wish=overrides.wish,
            subject=subject,
            knowledge=knowledge,
            role=group.role,
            num_instances=group.num_instances,
            window=window,
            speculation=speculation,
            mode=overrides.mode,
            capture_sizes=overrides.capture_sizes,
            state_element_bytes=overrides.state_element_bytes or _state_bytes(advice),
            max_num_seqs=overrides.max_num_seqs,
            advice=advice,
        )
        divisor = found["decode"].shape.tp if "decode" in found else 1
        engine = _best(task, group, arrangement, divisor)
        if isinstance(engine, Misfit):
            return engine
        short = too_few_nodes(task, engine)
        if short is not None:
            return short
        found[group.role] = engine
    return tuple(found[group.role] for group in arrangement.groups)


def _state_bytes(advice: Advice) -> int:
    practice = advice.find("--mamba-ssm-cache-dtype")
    return 4 if practice is None else 2


def _best(task: Task, group: Group, arrangement: Arrangement, divisor: int) -> Engine | Misfit:
    """The first shape with room for all requests at full length, else the largest that fits."""
    kept: Engine | None = None
    misfit: Misfit | None = None
    for same_size in shapes(task.wish, task.subject, group, arrangement.topology, task.advice):
        for shape in same_size:
            if shape.tp % divisor:
                raise unequal(task, shape.tp, divisor)
            engine = settle(task, shape)
            if isinstance(engine, Misfit):
                misfit = misfit if misfit and misfit.missing_bytes < engine.missing_bytes else engine
                continue
            kept = engine
            if engine.is_comfortable:
                break
        if kept is not None:
            note_shape(task, kept)
            return kept
    return misfit or uneven(task.subject, group)
