"""What an engine is: parallel sizes, limits, switches and memory; and what it is made for."""

from __future__ import annotations

from dataclasses import dataclass

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.plan.advice import Advice
from qanat.deploy.plan.model import RoleName
from qanat.deploy.plan.shape import Shape
from qanat.deploy.plan.speculation import Speculation
from qanat.deploy.plan.subject import Subject
from qanat.deploy.plan.wish import Wish
from qanat.deploy.sizing.memory import Memory


@dataclass(frozen=True)
class Limits:
    """What an engine takes at once, per data parallel rank."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(frozen=True)
class Switches:
    """Options of an engine."""

    is_expert_parallel: bool
    prefix_caching: bool
    flashcomm1: bool
    fused_mc2: bool
    overlap: bool
    mode: str
    """cudagraph_mode; NONE without graphs."""


@dataclass(frozen=True)
class Engine:
    """An engine that fits.

    Attributes:
        role: what it does.
        num_instances: how many of them there are.
        shape: parallel sizes.
        limits: per data parallel rank.
        switches: options.
        speculation: the same for all engines.
        sizes: captured; empty without graphs.
        share: --gpu-memory-utilization.
        buffer_mib: HCCL_BUFFSIZE.
        memory: of one NPU.
        advice: notes of the choices.
        warnings: for the user.
    """

    role: RoleName
    num_instances: int
    shape: Shape
    limits: Limits
    switches: Switches
    speculation: Speculation
    sizes: tuple[int, ...]
    share: float
    buffer_mib: int
    memory: Memory
    advice: Advice
    warnings: tuple[str, ...]

    @property
    def is_comfortable(self) -> bool:
        """Whether every wished request may be of the longest kind at once."""
        return self.memory.most_sequences >= self.limits.max_num_seqs


@dataclass(frozen=True)
class Misfit:
    """Why an engine does not fit.

    Attributes:
        shape: that was tried.
        why: with numbers.
        longest_context: tokens that would fit; 0 if the weights do not.
        most_sequences: sequences per rank that would fit; 0 likewise.
        missing_bytes: of one NPU.
    """

    shape: Shape
    why: str
    longest_context: int
    most_sequences: int
    missing_bytes: int


@dataclass(frozen=True)
class Task:
    """What engines of one role are made for.

    Attributes:
        wish: what is asked.
        subject: what it means.
        knowledge: facts.
        role: of the engines.
        num_instances: that share the requests.
        window: longest context that the model allows.
        speculation: of all engines.
        mode: cudagraph_mode that an override asks for; None for the planner's.
        capture_sizes: that an override asks for; None for the planner's.
        state_element_bytes: of one element of recurrent states.
        max_num_seqs: that an override asks for.
        advice: for this role, sizes open.
    """

    wish: Wish
    subject: Subject
    knowledge: Knowledge
    role: RoleName
    num_instances: int
    window: int
    speculation: Speculation
    mode: str | None
    capture_sizes: tuple[int, ...] | None
    state_element_bytes: int
    max_num_seqs: int | None
    advice: Advice
