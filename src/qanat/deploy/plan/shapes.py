"""Tensor and data parallel sizes that a model and a group of nodes allow."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from qanat.deploy.knowledge.kinds.models import ModelFacts
from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.arrangement import Group
from qanat.deploy.plan.engines import Engine, Task
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.shape import Shape
from qanat.deploy.plan.subject import Subject, needs_download
from qanat.deploy.plan.wish import Topology, Wish


def divides(model: ModelFacts, tp: int) -> str | None:
    """Why a tensor parallel size does not divide the model; None if it does."""
    if model.num_query_heads % tp:
        return f"{tp} does not divide the {model.num_query_heads} query heads"
    if model.is_hybrid and model.num_linear_key_heads % tp:
        return f"{tp} does not divide the {model.num_linear_key_heads} key heads of the recurrent layers"
    if model.num_kv_heads % tp and tp % model.num_kv_heads:
        return f"{tp} neither divides nor is a multiple of the {model.num_kv_heads} key heads"
    return None


def allowed_sizes(model: ModelFacts, limit: int) -> list[int]:
    """Tensor parallel sizes up to a limit that divide the model, ascending."""
    return [tp for tp in range(1, limit + 1) if divides(model, tp) is None]


def shapes(
    wish: Wish, subject: Subject, group: Group, topology: Topology, advice: Advice
) -> Iterator[list[Shape]]:
    """Lists of shapes of one tensor parallel size each, best first; in a list few ranks come first.

    Raises:
        ImpossibleWish: a stated size cannot be.
    """
    stated_tp, stated_dp = wish.tensor_parallel_size, wish.data_parallel_size
    if group.role == "decode":
        stated_tp = wish.decode_tensor_parallel_size or stated_tp
        stated_dp = wish.decode_data_parallel_size
    limit = subject.npus_per_node * (group.num_nodes if topology is Topology.RAY else 1)
    for tp in _tensor_sizes(wish, subject, limit, stated_tp, topology, advice):
        found = list(_data_sizes(wish, subject, group, topology, tp, stated_dp, advice))
        if found:
            yield [Shape(tp, dp, group.num_nodes) for dp in found]


def _tensor_sizes(
    wish: Wish, subject: Subject, limit: int, stated: int | None, topology: Topology, advice: Advice
) -> list[int]:
    allowed = allowed_sizes(subject.model, limit)
    cut = subject.weights.tensor_parallel_size
    if cut is not None and needs_download(wish):
        if stated not in (None, cut):
            why = f"--tensor-parallel-size {stated}: {subject.weights.repository} is cut for {cut} ranks."
            candidates = [msgspec.structs.replace(wish, tensor_parallel_size=cut)]
            raise ImpossibleWish(why, param="--tensor-parallel-size", candidates=candidates)
        return [cut] if cut in allowed else []
    if stated is not None:
        if stated not in allowed:
            raise _bad_size(wish, subject, limit, stated, allowed)
        return [stated]
    if topology is Topology.RAY:
        return [tp for tp in reversed(allowed) if tp > subject.npus_per_node] or [allowed[-1]]
    practice = advice.find("--tensor-parallel-size")
    preferred = int(str(practice.value)) if practice is not None else 1
    powers = [tp for tp in allowed if tp >= preferred and tp & (tp - 1) == 0]
    return powers or [allowed[-1]]


def _bad_size(wish: Wish, subject: Subject, limit: int, stated: int, allowed: list[int]) -> ImpossibleWish:
    reason = divides(subject.model, stated)
    if reason is None:
        reason = f"{limit} NPUs are there for one rank"
    near = sorted(allowed, key=lambda tp: (abs(tp - stated), tp))[:3]
    candidates = [
        msgspec.structs.replace(wish, tensor_parallel_size=tp, decode_tensor_parallel_size=None)
        for tp in near
    ]
    why = f"--tensor-parallel-size {stated} is not possible for {subject.model.name}: {reason}."
    return ImpossibleWish(why, param="--tensor-parallel-size", candidates=candidates)


def _data_sizes(
    wish: Wish,
    subject: Subject,
    group: Group,
    topology: Topology,
    tp: int,
    stated: int | None,
    advice: Advice,
) -> Iterator[int]:
    """Data parallel sizes, ascending."""
    if topology is Topology.RAY:
        if stated not in (None, 1):
            why = (
                f"--topology ray runs one tensor parallel group, and --data-parallel-size {stated} is asked."
            )
            candidates = [
                msgspec.structs.replace(wish, data_parallel_size=None),
                msgspec.structs.replace(wish, topology=None),
            ]
            raise ImpossibleWish(why, param="--data-parallel-size", candidates=candidates)
        yield 1
        return
    most = subject.npus_per_node // tp
    if stated is not None:
        _check_data_size(wish, subject, group, tp, stated, most)
        yield stated
        return
    locals_ = [one for one in range(1, most + 1) if _spreads(subject.model, tp * one * group.num_nodes)]
    practice = advice.find("--data-parallel-size")
    if practice is not None and practice.value == "one":
        locals_ = locals_[:1]
    elif practice is not None and practice.value == "fill":
        useful = [
            one for one in locals_ if one * group.num_nodes * group.num_instances <= _requests(wish, advice)
        ]
        locals_ = (useful or locals_[:1])[-1:]
    else:
        locals_ = [one for one in locals_ if one & (one - 1) == 0 or one == locals_[-1]]
    yield from (one * group.num_nodes for one in locals_)


def _requests(wish: Wish, advice: Advice) -> int:
    """Requests at once: more ranks than these would idle."""
    practice = advice.find("concurrency")
    return wish.concurrency or (int(str(practice.value)) if practice is not None else 1)


def _spreads(model: ModelFacts, ranks: int) -> bool:
    """Whether experts can be spread evenly."""
    return not model.is_moe or model.num_experts % ranks == 0


def _check_data_size(wish: Wish, subject: Subject, group: Group, tp: int, stated: int, most: int) -> None:
    flag = "--decode-data-parallel-size" if group.role == "decode" else "--data-parallel-size"
    cleared = msgspec.structs.replace(wish, data_parallel_size=None, decode_data_parallel_size=None)
    reason = None
    if stated % group.num_nodes:
        reason = f"{stated} ranks cannot be spread evenly over {group.num_nodes} nodes"
    elif stated > most * group.num_nodes:
        there = group.num_nodes * subject.npus_per_node
        reason = f"{stated} ranks of {tp} NPUs are {stated * tp}, and {there} are there"
    elif not _spreads(subject.model, tp * stated):
        reason = f"{subject.model.num_experts} experts cannot be spread evenly over {tp * stated} NPUs"
    if reason is not None:
        raise ImpossibleWish(f"{flag} {stated} is not possible: {reason}.", param=flag, candidates=[cleared])


def note_shape(task: Task, engine: Engine) -> None:
    """Notes of the sizes that were chosen."""
    wish, shape, advice = task.wish, engine.shape, engine.advice
    is_decode = engine.role == "decode"
    stated_tp = (wish.decode_tensor_parallel_size if is_decode else None) or wish.tensor_parallel_size
    stated_dp = wish.decode_data_parallel_size if is_decode else wish.data_parallel_size
    practice = task.advice.find("--tensor-parallel-size")
    if stated_tp == shape.tp:
        advice.state("--tensor-parallel-size", shape.tp)
    elif practice is not None and practice.value == shape.tp:
        advice.compute("--tensor-parallel-size", shape.tp)
    else:
        reason = "the next size that fits, or the largest that the NPUs allow"
        advice.reckon("--tensor-parallel-size", shape.tp, reason, "--tensor-parallel-size")
    if stated_dp == shape.dp:
        advice.state("--data-parallel-size", shape.dp)
    else:
        advice.compute("--data-parallel-size", shape.dp)
