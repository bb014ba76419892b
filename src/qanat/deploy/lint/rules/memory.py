"""Whether weights, cache and states fit, computed from the command line alone."""

from __future__ import annotations

from collections.abc import Iterator

from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.memory import Fit, captured, fit_of
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sizing.memory import Memory
from qanat.deploy.sizing.verdict import most_resident

GB = 1e9
FULL_BY_DEFAULT_SINCE = must_parse("0.21.0rc1")


@on_server("MEM001", "MEM002")
def budget(view: LaunchView) -> Iterator[Hit]:
    """Whether anything is left for the cache, and whether one request fits in it."""
    fit = fit_of(view)
    if fit is None:
        return
    memory, cache = fit.memory, fit.cache
    place = view.place("--gpu-memory-utilization", "--tensor-parallel-size")
    if fit.most_blocks < 1 + cache.blocks_for(1):
        message = f"{_taken(memory)} of the {memory.budget_bytes / GB:.1f} GB that {_share(view, fit)} gives"
        yield Hit("MEM001", place, f"{message}; nothing is left for the cache")
        return
    longest = cache.tokens_in(fit.most_blocks - 1)
    window = fit.layout.max_model_len
    if longest < window:
        given = "" if view.get("--max-model-len") else " by default"
        message = (
            f"a request may have {window} tokens{given}; {_taken(memory)}, "
            f"and {max(0, memory.pool_bytes) / GB:.1f} GB of cache hold about {memory.longest_context}"
        )
        advice = f"--max-model-len {memory.longest_context}" if memory.longest_context else None
        yield Hit("MEM002", view.place("--max-model-len", "--gpu-memory-utilization"), message, advice)


def _taken(memory: Memory) -> str:
    weights, *others = [item.size_bytes for item in memory.items if item.is_in_budget]
    return f"weights take {weights / GB:.1f} GB and buffers {sum(others) / GB:.1f} GB"


def _share(view: LaunchView, fit: Fit) -> str:
    chip = view.chip.name if view.chip else "the chip"
    return f"--gpu-memory-utilization {fit.layout.gpu_memory_utilization:g} on {chip}"


@on_server("HYB011", "HYB012")
def states(view: LaunchView) -> Iterator[Hit]:
    """Sequences and captured sizes of a hybrid model against its cache blocks."""
    fit = fit_of(view)
    if fit is None or not fit.layout.model.is_hybrid or fit.most_blocks < 1:
        return
    is_full = view.has_full_decode_graphs
    is_full |= not view.is_eager and view.graph_mode is None and view.version >= FULL_BY_DEFAULT_SINCE
    if not is_full:
        return
    blocks, sequences = fit.memory.num_blocks, fit.layout.max_num_seqs
    if sequences > fit.most_blocks:
        given = "--max-num-seqs" if view.get("--max-num-seqs") else "--max-num-seqs by default"
        resident = most_resident(fit.layout, fit.memory)
        message = (
            f"{given} is {sequences}, the cache has about {blocks} blocks: {blocks} is the largest value that "
            f"starts; about {resident} sequences run at once, as each takes {fit.cache.state_blocks} for its states"
        )
        advice = f"--max-num-seqs {resident or blocks}" if blocks else None
        yield Hit("HYB011", view.place("--max-num-seqs"), message, advice)
    largest = max(captured(view), default=0)
    if largest > fit.most_blocks:
        message = f"the captured sizes reach {largest}, the cache has about {blocks} blocks"
        yield Hit("HYB012", view.place("--max-num-seqs"), f"{message}; larger sizes are dropped")
