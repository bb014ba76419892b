"""Wishes near one that cannot be: more nodes, other weights, sizes left open; and far ones, where none is near."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.plan.subject import find_chip, find_model, published_variants, runs_on
from qanat.deploy.plan.wish import Topology, Wish

NUM_NODES = (1, 2, 3, 4, 6, 8)


def nearby(wish: Wish, knowledge: Knowledge) -> Iterator[tuple[Wish, ...]]:
    """Changed wishes, nearest first, in groups of the same kind; whether they are possible is not looked at."""
    try:
        model, chip = find_model(wish.model, knowledge), find_chip(wish.hardware, knowledge)
    except ConfigError:
        return
    replace = msgspec.structs.replace
    yield tuple(
        replace(wish, nodes=nodes, topology=_topology(wish, nodes), addresses=())
        for nodes in NUM_NODES
        if nodes > (wish.nodes or 1)
    )
    if wish.weights is not None:
        variants = published_variants(model, knowledge)
        others = [one for one in variants if runs_on(one, chip, knowledge) and one != wish.weights]
        yield tuple(replace(wish, weights=variant, model=model.name) for variant in others)
    yield (replace(wish, tensor_parallel_size=None, data_parallel_size=None),)
    yield (replace(wish, image=None),)
    yield (replace(wish, overrides={}),)


def last_resorts(wish: Wish, knowledge: Knowledge) -> Iterator[tuple[Wish, ...]]:
    """Wishes that keep little of what was asked: fewer words, then other machines."""
    try:
        model = find_model(wish.model, knowledge)
    except ConfigError:
        return
    replace = msgspec.structs.replace
    plain = Wish(model=model.name, hardware=wish.hardware, scenario=wish.scenario, nodes=wish.nodes)
    yield (
        replace(plain, weights=wish.weights, max_model_len=wish.max_model_len, concurrency=wish.concurrency),
        replace(plain, weights=wish.weights),
        plain,
        replace(plain, nodes=None),
    )
    yield tuple(replace(plain, hardware=one.name, nodes=None) for one in knowledge.chips)


def _topology(wish: Wish, nodes: int) -> Topology | None:
    return None if wish.topology is Topology.SINGLE_NODE and nodes > 1 else wish.topology
