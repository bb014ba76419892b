"""Numbers: thresholds, what sizes of memory are computed with, and published figures."""

from __future__ import annotations

from typing import Literal

from qanat.deploy.knowledge.entry import Entry


class Threshold(Entry, frozen=True, kw_only=True):
    """A number that a check compares with, and its unit."""

    value: float
    unit: str
    about: str


class Estimate(Entry, frozen=True, kw_only=True):
    """A number that sizes of memory are guessed with, since nobody publishes or computes it; `unit` says of what."""

    value: float
    unit: str


class Communicator(Entry, frozen=True, kw_only=True):
    """A group of HCCL that ranks talk in; `buffer_mib` of each of its two buffers, None for HCCL_BUFFSIZE."""

    buffer_mib: int | None = None


class Baseline(Entry, frozen=True, kw_only=True):
    """A published figure of a model on a layout.

    Attributes:
        repository: of the weights; `ModelFacts.pattern` finds the model by it.
        weights: the variant.
        chip: name in the table of chips; None where the source does not say.
        measure: output tokens per second over the whole service, or points of accuracy on `dataset`.
        value: in that unit.
        pass_from: the source's own test fails below it.
        tensor_parallel_size: with `data_parallel_size` and `num_speculative_tokens` the layout, None where not said.
        input_tokens: of one request; `shared_prefix_percent` of them are the same in all requests.
        output_tokens: of one request; for accuracy the most it may have.
        concurrency: requests at once.
        request_rate: requests that start per second; None is all at once.
    """

    repository: str
    weights: str
    chip: str | None = None
    measure: Literal["output_tokens_per_s", "accuracy"]
    value: float
    pass_from: float | None = None
    is_disaggregated: bool = False
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    num_speculative_tokens: int | None = None
    dataset: str | None = None
    input_tokens: int | None = None
    shared_prefix_percent: int = 0
    output_tokens: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
