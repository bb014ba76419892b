"""Published figures that are nearest to a deployment and a load."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.numbers import Baseline
from qanat.deploy.plan.model import Plan
from qanat.deploy.plan.places import decoding_role


@dataclass(frozen=True)
class Load:
    """What a benchmark asks of a service; lengths are tokens of one request, `concurrency` is requests at once."""

    input_tokens: int
    output_tokens: int
    concurrency: int
    shared_prefix_percent: int = 0


@dataclass(frozen=True)
class Setup:
    """What a published figure is compared by.

    `repository` is any text in which the model's name shows; sizes are those of the role that decodes.
    """

    repository: str
    weights: str
    chip: str
    is_disaggregated: bool
    tensor_parallel_size: int
    data_parallel_size: int
    num_speculative_tokens: int

    @staticmethod
    def of(plan: Plan) -> Setup:
        """The setup of a plan."""
        role = decoding_role(plan)
        speculative = role.flags.get("speculative-config")
        num_drafts = speculative.get("num_speculative_tokens", 0) if isinstance(speculative, dict) else 0
        return Setup(
            repository=f"{plan.repository} {plan.model}",
            weights=plan.weights.removesuffix("-mtp"),
            chip=plan.chip,
            is_disaggregated=len(plan.roles) > 1,
            tensor_parallel_size=role.tensor_parallel_size,
            data_parallel_size=role.data_parallel_size * role.num_instances,
            num_speculative_tokens=num_drafts if isinstance(num_drafts, int) else 0,
        )


COMPARABLE_FACTOR = 1.25
"""Lengths and requests at once within this factor make a share of a published figure mean something."""


def throughputs(setup: Setup, knowledge: Knowledge) -> list[Baseline]:
    """All published figures of output tokens per second of the same model."""
    return _of_model(setup, "output_tokens_per_s", knowledge)


def is_comparable(baseline: Baseline, setup: Setup, load: Load) -> bool:
    """Whether a figure is of the same chip, weights and layout and of nearly the same load."""
    pairs = (
        (baseline.input_tokens, load.input_tokens),
        (baseline.output_tokens, load.output_tokens),
        (baseline.concurrency, load.concurrency),
    )
    return (
        (baseline.chip, baseline.weights) == (setup.chip, setup.weights)
        and baseline.is_disaggregated == setup.is_disaggregated
        and baseline.shared_prefix_percent == load.shared_prefix_percent
        and baseline.tensor_parallel_size in (None, setup.tensor_parallel_size)
        and baseline.data_parallel_size in (None, setup.data_parallel_size)
        and all(_doublings(*pair) <= math.log2(COMPARABLE_FACTOR) for pair in pairs)
    )


def nearest_throughput(setup: Setup, load: Load, knowledge: Knowledge) -> list[Baseline]:
    """The figures of the same model whose layout and load are nearest, more than one if they are equally near.

    Empty if nothing is published for the model.
    """
    found = throughputs(setup, knowledge)
    if not found:
        return []
    distances = {one.name: _distance(one, setup, load) for one in found}
    least = min(distances.values())
    return [one for one in found if distances[one.name] == least]


def published_accuracies(setup: Setup, knowledge: Knowledge) -> list[Baseline]:
    """The accuracies of the same model: those of the same weights first, then by data set."""
    found = _of_model(setup, "accuracy", knowledge)
    return sorted(found, key=lambda one: (one.weights != setup.weights, one.dataset or "", one.name))


def layout_text(baseline: Baseline) -> str:
    """A figure's layout and load in one line ("w8a8, A3, TP16 DP1, k 3, 3500 in, 1500 out, 160 at once")."""
    words = [baseline.weights, baseline.chip or "chip not named"]
    if baseline.is_disaggregated:
        words.append("prefill and decode apart")
    sizes = (("TP", baseline.tensor_parallel_size), ("DP", baseline.data_parallel_size))
    parallel = " ".join(f"{name}{size}" for name, size in sizes if size is not None)
    words += [parallel] if parallel else []
    if baseline.num_speculative_tokens is not None:
        words.append(f"k {baseline.num_speculative_tokens}")
    if baseline.input_tokens is not None:
        shared = f" ({baseline.shared_prefix_percent} % shared)" if baseline.shared_prefix_percent else ""
        words.append(f"{baseline.input_tokens} in{shared}")
    if baseline.output_tokens is not None:
        words.append(f"{baseline.output_tokens} out")
    if baseline.concurrency is not None:
        words.append(f"{baseline.concurrency} at once")
    return ", ".join(words)


def _of_model(setup: Setup, measure: str, knowledge: Knowledge) -> list[Baseline]:
    name = setup.repository.lower()
    model = next((one for one in knowledge.models if re.search(one.pattern, name)), None)
    if model is None:
        return []
    return [
        one
        for one in knowledge.baselines.entries.values()
        if one.measure == measure and re.search(model.pattern, one.repository.lower())
    ]


def _distance(baseline: Baseline, setup: Setup, load: Load) -> float:
    """How far a figure is from a setup and a load; a doubled size counts as one, another chip as much as four."""
    unlike = 4.0 * (baseline.chip != setup.chip) + 2.0 * (baseline.weights != setup.weights)
    unlike += 3.0 * (baseline.is_disaggregated != setup.is_disaggregated)
    unlike += abs(baseline.shared_prefix_percent - load.shared_prefix_percent) / 30
    unlike += _doublings(baseline.tensor_parallel_size, setup.tensor_parallel_size)
    unlike += _doublings(baseline.data_parallel_size, setup.data_parallel_size)
    unlike += abs((baseline.num_speculative_tokens or 0) - setup.num_speculative_tokens) / 4
    unlike += _doublings(baseline.input_tokens, load.input_tokens)
    unlike += _doublings(baseline.output_tokens, load.output_tokens) / 2
    return unlike + _doublings(baseline.concurrency, load.concurrency)


def _doublings(published: int | None, wanted: int) -> float:
    return abs(math.log2(published / wanted)) if published and wanted else 0.0
