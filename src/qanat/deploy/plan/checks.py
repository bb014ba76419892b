"""Whether a wish makes sense before it is planned, and whether the linter agrees with the plan."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

import msgspec

from qanat.config.flag_names import flag_of
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.practices import Practice
from qanat.deploy.knowledge.kinds.rules import Consequence, Severity
from qanat.deploy.lint.engine import lint
from qanat.deploy.plan.advice import Advice, Situation
from qanat.deploy.plan.arrangement import Arrangement
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.model import Plan, RoleName
from qanat.deploy.plan.script import documents
from qanat.deploy.plan.subject import Subject
from qanat.deploy.plan.wish import Topology, Wish

COUNTS = (
    "nodes",
    "npus_per_node",
    "npu_memory_gib",
    "prefill_nodes",
    "decode_nodes",
    "num_prefill",
    "num_decode",
    "tensor_parallel_size",
    "data_parallel_size",
    "decode_tensor_parallel_size",
    "decode_data_parallel_size",
    "max_model_len",
    "concurrency",
    "max_num_batched_tokens",
)
"""Fields that are numbers of something, so at least 1."""
ASCEND = "ascend"
"""--quantization of all quantised weights here."""
INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")
"""Names that Linux gives to network interfaces."""


def check_numbers(wish: Wish) -> None:
    """Refuses numbers that mean nothing.

    Raises:
        ImpossibleWish: names the flag.
    """
    for name in COUNTS:
        value = getattr(wish, name)
        if value is not None and value < 1:
            flag = flag_of(name)
            free = msgspec.structs.replace(wish, **{name: None})
            raise ImpossibleWish(
                f"{flag} {value} is too small; the least is 1.", param=flag, candidates=[free]
            )
    share = wish.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        free = msgspec.structs.replace(wish, gpu_memory_utilization=None)
        why = f"--gpu-memory-utilization {share:g}: a share above 0, at most 1."
        raise ImpossibleWish(why, param="--gpu-memory-utilization", candidates=[free])
    check_names(wish)
    if wish.model_path is not None and not wish.model_path.startswith("/"):
        free = msgspec.structs.replace(wish, model_path="/" + wish.model_path)
        why = f"--model-path {wish.model_path}: a path on the nodes begins with /."
        raise ImpossibleWish(why, param="--model-path", candidates=[free])


def check_names(wish: Wish) -> None:
    """Refuses addresses, interfaces and names that cannot be.

    Raises:
        ImpossibleWish: names the flag and the value.
    """
    why = param = None
    bad = [address for address in wish.addresses if not _is_address(address)]
    if bad:
        param, why = "--addresses", f"--addresses {bad[0]} is no IP address."
    elif len(set(wish.addresses)) < len(wish.addresses):
        param, why = "--addresses", "--addresses names one address twice; every node has its own."
    elif wish.interface is not None and not INTERFACE.fullmatch(wish.interface):
        param, why = "--interface", f"--interface {wish.interface!r} is no name of a network interface."
    elif wish.served_model_name is not None and not wish.served_model_name.strip():
        param, why = "--served-model-name", "--served-model-name is empty."
    elif wish.served_model_name is not None and not wish.served_model_name.isprintable():
        param, why = (
            "--served-model-name",
            "--served-model-name has characters that cannot be seen, such as line ends.",
        )
    if why is not None:
        free = msgspec.structs.replace(wish, addresses=(), interface=None, served_model_name=None)
        raise ImpossibleWish(why, param=param, candidates=[free])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def check_model_fields(wish: Wish, subject: Subject) -> None:
    """Refuses switches that the model or its weights do not have.

    Raises:
        ImpossibleWish: names the flag.
    """
    if wish.expert_parallel and not subject.model.is_moe:
        free = msgspec.structs.replace(wish, expert_parallel=None)
        why = f"--expert-parallel: {subject.model.name} has no experts."
        raise ImpossibleWish(why, param="--expert-parallel", candidates=[free])
    if wish.npu_memory_gib is not None and int(wish.npu_memory_gib) not in subject.chip.visible_bytes:
        sizes = sorted(subject.chip.visible_bytes)
        candidates = [msgspec.structs.replace(wish, npu_memory_gib=float(one)) for one in sizes]
        listed = " or ".join(map(str, sizes))
        why = f"--npu-memory-gib {wish.npu_memory_gib:g}: {subject.chip.name} has {listed} GiB per NPU."
        raise ImpossibleWish(why, param="--npu-memory-gib", candidates=candidates)


def check_quantization(wish: Wish, subject: Subject, stated: Any) -> None:
    """Refuses a --quantization that the weights do not have.

    Raises:
        ImpossibleWish: names both.
    """
    variant = subject.weights.variant
    if stated is None or (variant != "bf16" and stated == ASCEND):
        return
    reason = f"weights in {variant} have none" if variant == "bf16" else f"weights in {variant} have {ASCEND}"
    kept = {name: value for name, value in wish.overrides.items() if not name.endswith("quantization")}
    candidates = [msgspec.structs.replace(wish, overrides=kept)]
    raise ImpossibleWish(
        f"--overrides quantization={stated}: {reason}.", param="--overrides", candidates=candidates
    )


def check_prefix_caching(wish: Wish, subject: Subject, topology: Topology, knowledge: Knowledge) -> None:
    """Refuses prefix caching where hybrid models are served apart.

    Raises:
        ImpossibleWish: with the effect that is known.
    """
    if wish.prefix_caching and subject.model.is_hybrid and topology is Topology.DISAGGREGATED:
        rule = knowledge.rules["HYB005"]
        why = f"--prefix-caching with --topology pd for {subject.model.name} ({rule.name}): {rule.effect}"
        candidates = [msgspec.structs.replace(wish, prefix_caching=False)]
        raise ImpossibleWish(why, param="--prefix-caching", candidates=candidates)


def check_support(wish: Wish, subject: Subject, advice: Advice) -> None:
    """Refuses what is known not to work on a chip or in a release.

    Raises:
        ImpossibleWish: with the reason of the practice.
    """
    practice = advice.find("support")
    if practice is not None and practice.value is False:
        why = f"{subject.model.name} on {subject.chip.name} ({practice.name}): {practice.reason}."
        candidates = [
            msgspec.structs.replace(wish, topology=None, nodes=None),
            msgspec.structs.replace(wish, image=None),
        ]
        raise ImpossibleWish(why, param="--hardware", candidates=candidates)


def cautions(advice: Advice) -> list[str]:
    """Everything that the user should know of this kind of deployment."""
    return [f"{practice.reason} ({practice.source})" for practice in advice.heed()]


def check_step(wish: Wish, num_drafted: int) -> None:
    """Refuses steps that do not hold one sequence with its drafts.

    Raises:
        ImpossibleWish: names both numbers.
    """
    tokens = wish.max_num_batched_tokens
    if tokens is None or tokens >= 1 + num_drafted:
        return
    why = f"--max-num-batched-tokens {tokens}: {tokens} tokens do not hold one sequence of 1 + {num_drafted} tokens."
    replace = msgspec.structs.replace
    least = 1 + num_drafted
    candidates = [
        replace(wish, max_num_batched_tokens=None),
        replace(wish, max_num_batched_tokens=least, concurrency=wish.concurrency or 1),
    ]
    raise ImpossibleWish(why, param="--max-num-batched-tokens", candidates=candidates)


def check_window(wish: Wish, subject: Subject, window: int, advice: Advice) -> None:
    """Refuses contexts beyond what the model was made for.

    Raises:
        ImpossibleWish: names the window, and YaRN where it reaches.
    """
    if wish.max_model_len is None or wish.max_model_len <= window:
        return
    candidates = [msgspec.structs.replace(wish, max_model_len=window)]
    practice = advice.find("--hf-overrides")
    how = ""
    if practice is not None and isinstance(practice.value, dict):
        text = msgspec.json.encode(practice.value).decode()
        overrides = {**wish.overrides, "hf-overrides": text}
        candidates.append(msgspec.structs.replace(wish, overrides=overrides))
        how = " without YaRN" if "hf-overrides" not in wish.overrides else ""
    why = f"--max-model-len {wish.max_model_len} exceeds the window of {subject.model.name}, {window} tokens{how}."
    raise ImpossibleWish(why, param="--max-model-len", candidates=candidates)


def check_chip_window(wish: Wish, subject: Subject, practice: Practice) -> None:
    """Refuses contexts beyond what a chip is good for, whatever the model's window.

    Raises:
        ImpossibleWish: with the reason of the practice.
    """
    limit = int(str(practice.value))
    if wish.max_model_len is not None and wish.max_model_len > limit:
        why = f"--max-model-len {wish.max_model_len} on {subject.chip.name}: {practice.reason} ({practice.source})."
        candidates = [msgspec.structs.replace(wish, max_model_len=limit)]
        raise ImpossibleWish(why, param="--max-model-len", candidates=candidates)


def checked(plan: Plan, wish: Wish) -> Plan:
    """The plan, if the linter finds nothing that stops it; what it only warns of is told.

    Args:
        plan: to check.
        wish: what it is for.

    Raises:
        ImpossibleWish: something in it would not start, or would not work; names the rule.
    """
    warnings = list(plan.warnings)
    for finding in lint(documents(plan), plan.image):
        if finding.severity is Severity.INFO:
            continue
        text = f"{finding.message} ({finding.rule_id}). Fix: {finding.fix.text.rstrip('.')}."
        stops = finding.consequence is Consequence.START_FAILS
        if finding.severity is Severity.ERROR or stops:
            stated = ("max_num_batched_tokens", "gpu_memory_utilization")
            candidates = [
                msgspec.structs.replace(wish, overrides={}),
                *(msgspec.structs.replace(wish, **{name: None}) for name in stated),
                msgspec.structs.replace(wish, prefix_caching=None),
            ]
            raise ImpossibleWish(
                f"This would not {'start' if stops else 'work'}: {text}", candidates=candidates
            )
        if text not in warnings:
            warnings.append(text)
    return msgspec.structs.replace(plan, warnings=tuple(warnings))


def situation_of(subject: Subject, arrangement: Arrangement, wish: Wish, role: RoleName) -> Situation:
    """What practices look at, for one role."""
    return Situation(
        model=subject.model,
        variant=subject.weights.variant,
        chip=subject.chip.name,
        family=subject.chip.family,
        scenario=wish.scenario.value,
        topology=arrangement.topology.value,
        num_nodes=arrangement.num_nodes,
        version=subject.version,
        role=role,
    )
