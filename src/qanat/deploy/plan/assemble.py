"""A plan put together from engines that fit."""

from __future__ import annotations

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import DriverSupport
from qanat.deploy.knowledge.kinds.settings import Connector
from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.arrangement import Arrangement
from qanat.deploy.plan.checks import cautions
from qanat.deploy.plan.engines import Engine
from qanat.deploy.plan.flags import engine_flags
from qanat.deploy.plan.model import Choice, Plan, Proxy, Role
from qanat.deploy.plan.nodes import check_ports, engine_port, foreign_ports, make_nodes, ports_of
from qanat.deploy.plan.overrides import NOT_COUNTED, Overrides, apply
from qanat.deploy.plan.subject import Subject, needs_download
from qanat.deploy.plan.transfer import choose_connector, choose_proxy, transfer_flags
from qanat.deploy.plan.wish import Topology, Wish

replace = msgspec.structs.replace

FOLDER = "/models"
"""Where weights without a known repository are expected."""
ORDER = (
    "topology",
    "weights",
    "image",
    "driver",
    "--tensor-parallel-size",
    "--data-parallel-size",
    "--enable-expert-parallel",
    "concurrency",
    "--max-num-seqs",
    "--max-model-len",
    "--max-num-batched-tokens",
    "--gpu-memory-utilization",
    "speculation",
    "num_speculative_tokens",
    "cudagraph_mode",
    "cudagraph_capture_sizes",
    "--enable-prefix-caching",
    "connector",
    "kv_port",
    "proxy",
    "proxy port",
    "HCCL_BUFFSIZE",
    "enable_flashcomm1",
    "enable_fused_mc2",
    "multistream_overlap_shared_expert",
    "recompute_scheduler_enable",
)
"""Choices in the order in which readers care; the rest follows as it was made."""


def assemble(
    wish: Wish,
    overrides: Overrides,
    subject: Subject,
    arrangement: Arrangement,
    engines: tuple[Engine, ...],
    common: Advice,
    knowledge: Knowledge,
) -> Plan:
    """The plan.

    Args:
        wish: as the user stated it; it is kept in the plan.
        overrides: what is left of its overrides, with the wish that holds the others.
        subject: what runs, and on what.
        arrangement: engines over nodes.
        engines: one for each group of the arrangement.
        common: notes of choices for the whole deployment.
        knowledge: facts.

    Raises:
        ImpossibleWish: ports, addresses or the connector do not go together.
    """
    asked = overrides.wish
    served_name = asked.served_model_name or subject.model.name.lower()
    note_subject(common, asked, subject, arrangement, served_name, knowledge)
    nodes = make_nodes(asked, arrangement, engines)
    is_pair = arrangement.topology is Topology.DISAGGREGATED
    connector = choose_connector(asked, subject, knowledge, common) if is_pair else None
    roles, taken = [], {}
    for engine in engines:
        role = _role(engine, engines, overrides, subject, arrangement, connector, served_name, knowledge)
        roles.append(role)
        taken[engine.role] = ports_of(engine, role.flags, nodes)
    proxy = _proxy(asked, connector, common)
    port = proxy.port if proxy else engine_port(asked, engines[0])
    foreign = foreign_ports(subject.chip.num_npus_per_node, is_pair, knowledge)
    check_ports(asked, taken, proxy.port if proxy else None, foreign)
    return Plan(
        wish=wish,
        model=subject.model.name,
        weights=subject.weights.variant,
        repository=subject.weights.repository,
        model_source=model_source(asked, subject),
        served_model_name=served_name,
        chip=subject.chip.name,
        release=str(subject.version),
        image=subject.image,
        driver=driver_of(subject, knowledge)[0],
        cann=(subject.release.cann or "") if subject.release else "",
        topology=arrangement.topology,
        roles=tuple(roles),
        nodes=nodes,
        proxy=proxy,
        port=port,
        choices=tuple(_choices(common, engines)),
        warnings=tuple(_warnings(asked, subject, engines, common, overrides)),
    )


def _proxy(wish: Wish, connector: Connector | None, common: Advice) -> Proxy | None:
    if connector is None:
        return None
    port = int(common.take("proxy port", wish.proxy_port))
    return choose_proxy(wish, connector, "prefill-0", port, common)


def _role(
    engine: Engine,
    engines: tuple[Engine, ...],
    overrides: Overrides,
    subject: Subject,
    arrangement: Arrangement,
    connector: Connector | None,
    served_name: str,
    knowledge: Knowledge,
) -> Role:
    topology = arrangement.topology
    flags, env = engine_flags(engine, overrides.wish, subject, topology, served_name, knowledge)
    if engine.shape.num_nodes > 1 and topology is not Topology.RAY:
        flags["data-parallel-size-local"] = engine.shape.dp_local
    if connector is not None:
        flags |= transfer_flags(engine, engines, connector, subject)
    for name, value in overrides.flags.items():
        engine.advice.state(f"--{name}", value)
    return Role(
        name=engine.role,
        tensor_parallel_size=engine.shape.tp,
        data_parallel_size=engine.shape.dp,
        num_instances=engine.num_instances,
        nodes_per_instance=engine.shape.num_nodes,
        flags=apply(flags, overrides.flags),
        env=env,
        capture_sizes=engine.sizes,
        memory=engine.memory,
    )


def model_source(wish: Wish, subject: Subject) -> str:
    """What `vllm serve` is given: a folder of the nodes, or a repository."""
    if not needs_download(wish):
        return wish.model_path or wish.model
    return subject.weights.repository or f"{FOLDER}/{subject.model.name}-{subject.weights.variant}"


def driver_of(subject: Subject, knowledge: Knowledge) -> tuple[str, str]:
    """The recommended driver and the oldest one for the image's CANN; empty where nothing is known."""
    cann = subject.release.cann if subject.release else None
    for entry in knowledge.tables["drivers"].entries.values():
        assert isinstance(entry, DriverSupport)
        if cann and cann.startswith(entry.name + ".") and subject.chip.name in entry.chips:
            return entry.recommended, entry.oldest
    return "", ""


def note_subject(
    advice: Advice,
    wish: Wish,
    subject: Subject,
    arrangement: Arrangement,
    served_name: str,
    knowledge: Knowledge,
) -> None:
    """Notes topology, weights, image, driver and name."""
    if wish.topology is not None:
        advice.state("topology", arrangement.title)
    else:
        advice.compute("topology", arrangement.title)
    if wish.weights is not None:
        advice.state("weights", subject.weights.variant)
    else:
        advice.compute("weights", subject.weights.variant)
    if wish.image is not None:
        advice.state("image", subject.image)
    else:
        advice.compute("image", subject.image)
    recommended, oldest = driver_of(subject, knowledge)
    if recommended and subject.release is not None:
        advice.numbers |= {"cann": subject.release.cann, "oldest": oldest}
        advice.compute("driver", recommended)
    if wish.served_model_name is not None:
        advice.state("--served-model-name", served_name)
    else:
        advice.compute("--served-model-name", served_name)


def _choices(common: Advice, engines: tuple[Engine, ...]) -> list[Choice]:
    """Choices of the deployment and of its engines, by importance; those that engines share are told once."""
    found = common.choices(None)
    known = {choice.what for choice in found}
    by_engine = [
        [one for one in engine.advice.choices(engine.role) if one.what not in known] for engine in engines
    ]
    plain = [{replace(one, role=None) for one in choices} for choices in by_engine]
    shared = set.intersection(*plain)
    for number, choices in enumerate(by_engine):
        for one in choices:
            if replace(one, role=None) not in shared:
                found.append(one if len(engines) > 1 else replace(one, role=None))
            elif number == 0:
                found.append(replace(one, role=None))
    return sorted(found, key=lambda one: ORDER.index(one.what) if one.what in ORDER else len(ORDER))


def _warnings(
    wish: Wish,
    subject: Subject,
    engines: tuple[Engine, ...],
    common: Advice,
    overrides: Overrides,
) -> list[str]:
    found = [
        f"--{name} changes what memory goes to, and the memory here does not count with it."
        for name in NOT_COUNTED
        if name in overrides.flags
    ]
    for engine in engines:
        name = "" if len(engines) == 1 else f"{engine.role}: "
        found += [name + warning for warning in engine.warnings]
        found += [name + warning for warning in _about_memory(engine)]
        if engine.switches.fused_mc2 and engine.shape.dp > 1:
            found += engine.advice.remark("fused MC2 over ranks", dp=engine.shape.dp)
        idle = subject.npus_per_node - engine.shape.npus_per_node
        if idle > 0:
            found.append(
                f"{name}{idle} of {subject.npus_per_node} NPUs of a node stay free for other services."
            )
    if not subject.is_published and needs_download(wish):
        found.append(
            f"No repository is known for {subject.weights.name}; put the weights where the scripts expect them, or "
            "name their folder with --model-path."
        )
    blocks = {engine.role: engine.memory.block_tokens for engine in engines}
    if len(set(blocks.values())) > 1:
        found += common.remark("unequal blocks", **blocks)
    draft = engines[0].speculation.draft_model
    if draft is not None and not draft.startswith("/"):
        found += common.remark("draft download", draft=draft)
    if any(engine.role == "prefill" for engine in engines) and wish.proxy == "example":
        found += common.remark("example proxy")
    return found + cautions(common)


def _about_memory(engine: Engine) -> list[str]:
    memory, limits = engine.memory, engine.limits
    found: list[str] = []
    if memory.most_sequences < limits.max_num_seqs:
        found.append(
            f"Of {limits.max_num_seqs} sequences per rank {memory.most_sequences} may be {limits.max_model_len} "
            "tokens long at once; if more are, some wait or start over."
        )
    return found
