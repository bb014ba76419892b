"""Graph capture: sizes, modes, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.finding import Edit
from qanat.deploy.lint.reading import as_integer, is_truthy
from qanat.deploy.lint.registry import Hit, on_server
from qanat.deploy.lint.view import COMPILATION, LaunchView
from qanat.deploy.sizing.capture import (
    DEFAULT_MAX_CAPTURE,
    DEFAULT_MAX_NUM_SEQS,
    Rewriting,
    rewrite_sizes,
)
from qanat.deploy.sources.values import Place

ROUNDING_SINCE = must_parse("0.13.0")
DROPPING_UNTIL = must_parse("0.26.0")
MAX_SAFE_SHARE = 0.92
GRAPH_KEYS = ("cudagraph_mode", "cudagraph_capture_sizes", "max_cudagraph_capture_size")


def sizes_place(view: LaunchView) -> Place:
    """Where capture sizes are stated, or would be."""
    node = view.capture_node
    return node.place if node is not None else view.place("--cudagraph-capture-sizes", COMPILATION)


def _multiple(view: LaunchView) -> int:
    is_rounding = view.has_full_decode_graphs and view.version >= ROUNDING_SINCE
    return 1 + view.num_draft_tokens if is_rounding else 1


def _divisor(view: LaunchView) -> int:
    return view.tp if view.has_flashcomm1 and view.version <= DROPPING_UNTIL else 1


def _rewriting(view: LaunchView) -> Rewriting | None:
    if not view.capture_sizes or view.is_eager:
        return None
    limit = view.max_num_batched_tokens
    return rewrite_sizes(view.capture_sizes, limit, _divisor(view), _multiple(view))


@on_server("GRA001", "GRA002", "GRA003", "GRA004", "GRA006")
def sizes(view: LaunchView) -> Iterator[Hit]:
    """What the stated sizes become."""
    done = _rewriting(view)
    node = view.capture_node
    if node is not None and node.value == [] and not view.is_eager:
        yield Hit("GRA004", node.place, "the list of capture sizes is empty")
    if done is None or _is_undecided(view):
        return
    place, step = sizes_place(view), max(_divisor(view), _multiple(view))
    advice = f"list multiples of {step}"
    edits = _edit(view, done.sizes)
    if done.over_budget:
        message = f"{listed(done.over_budget)} exceed --max-num-batched-tokens {view.max_num_batched_tokens}"
        yield Hit("GRA006", place, f"capture sizes {message}")
    if done.not_divisible and len(done.not_divisible) == len(view.capture_sizes):
        message = f"no capture size is a multiple of the tensor parallel size {view.tp}"
        yield Hit("GRA001", place, message, advice)
        return
    if done.not_divisible:
        left = f"{len(done.sizes)} of {len(view.capture_sizes)} are left"
        message = f"FlashComm1 drops {listed(done.not_divisible)}, no multiples of {view.tp}; {left}"
        yield Hit("GRA002", place, message, f"{advice}, such as {listed(done.sizes)}", edits)
        edits = ()
    if not done.sizes:
        yield Hit("GRA004", place, f"nothing is left after rounding to multiples of {step}", advice)
    elif done.rounded:
        pairs = ", ".join(f"{size} becomes {up}" for size, up in done.rounded[:6])
        more = f" and {len(done.rounded) - 6} more" if len(done.rounded) > 6 else ""
        what = f"with {view.num_draft_tokens} speculative tokens {pairs}{more}"
        gone = f"; {listed(done.beyond)} are dropped" if done.beyond else ""
        yield Hit("GRA003", place, what + gone, f"{advice}, such as {listed(done.sizes)}", edits)


def _is_undecided(view: LaunchView) -> bool:
    """Whether FlashComm1 and speculation have no common multiple, which GRA015 reports."""
    return any(True for _ in common_multiple(view))


def _edit(view: LaunchView, kept: Sequence[int]) -> tuple[Edit, ...]:
    node = view.capture_node
    if node is None or not kept:
        return ()
    return (Edit(node.place, "[" + ",".join(map(str, kept)) + "]"),)


def listed(sizes: Sequence[int]) -> str:
    """Sizes as a list for people."""
    return ", ".join(map(str, sizes))


@on_server("GRA005", "GRA016")
def largest(view: LaunchView) -> Iterator[Hit]:
    """Whether the largest decode batch is captured."""
    if view.is_eager or view.kv_role == "kv_producer":
        return
    rows_each = 1 + view.num_draft_tokens
    stated = view.integer("--max-num-seqs")
    if stated is None and view.get("--max-num-seqs") is not None:
        return
    needed = (stated or DEFAULT_MAX_NUM_SEQS) * rows_each
    if view.max_num_batched_tokens is not None:
        needed = min(needed, view.max_num_batched_tokens // rows_each * rows_each)
    done = _rewriting(view)
    if done is None:
        is_default = view.capture_node is None and view.get("--cudagraph-capture-sizes") is None
        if is_default and stated is not None and needed > DEFAULT_MAX_CAPTURE and view.has_full_decode_graphs:
            message = f"the default sizes end at {DEFAULT_MAX_CAPTURE}, the largest batch has {needed} tokens"
            yield Hit("GRA016", sizes_place(view), message)
        return
    if not done.sizes or max(done.sizes) >= needed:
        return
    num_rows = max(done.sizes) // rows_each
    message = (
        f"the sizes end at {max(done.sizes)}, enough for {num_rows} sequences of {rows_each} tokens; "
        f"the largest batch has {needed} tokens"
    )
    if stated is None:
        yield Hit("GRA016", sizes_place(view), f"{message} by default")
    else:
        yield Hit("GRA005", sizes_place(view), message)


@on_server("GRA007")
def two_limits(view: LaunchView) -> Iterator[Hit]:
    """max_cudagraph_capture_size beside a list."""
    node = view.key(COMPILATION, "max_cudagraph_capture_size")
    limit = as_integer(node) if node else view.integer("--max-cudagraph-capture-size")
    if limit is None or not view.capture_sizes or view.is_eager or max(view.capture_sizes) == limit:
        return
    place = node.place if node else view.place("--max-cudagraph-capture-size")
    yield Hit("GRA007", place, f"the largest stated size is {max(view.capture_sizes)}, not {limit}")


@on_server("GRA009", "GRA010", "GRA013", "GRA014")
def modes(view: LaunchView) -> Iterator[Hit]:
    """Modes and what contradicts them."""
    if view.switch("--enforce-eager"):
        for key in GRAPH_KEYS:
            node = view.key(COMPILATION, key)
            if node is not None:
                place = node.key_place or node.place
                yield Hit("GRA013", place, f"{key} has no effect beside --enforce-eager")
        return
    mode = view.key(COMPILATION, "cudagraph_mode")
    place = mode.place if mode else view.launch.place
    is_piecewise = view.graph_mode in ("PIECEWISE", "FULL_AND_PIECEWISE")
    if is_piecewise and view.chip is not None and view.chip.family == "A5":
        yield Hit("GRA009", place, f"{view.graph_mode} is cut to four sizes on {view.chip.name}")
    if view.graph_mode == "FULL_AND_PIECEWISE":
        yield Hit("GRA010", place, f"vllm-ascend {view.version} makes PIECEWISE of it")
    sequence_parallel = view.key(COMPILATION, "pass_config", "enable_sp")
    if sequence_parallel is not None and is_truthy(sequence_parallel.value):
        yield Hit("GRA014", sequence_parallel.place, "enable_sp is not supported on Ascend")


@on_server("GRA012")
def memory(view: LaunchView) -> Iterator[Hit]:
    """Memory that graphs need on top."""
    share = view.number("--gpu-memory-utilization")
    if share is not None and MAX_SAFE_SHARE < share <= 1 and not view.is_eager:
        message = f"{share:g} of the memory is given away before graphs are captured"
        yield Hit("GRA012", view.place("--gpu-memory-utilization"), message)


@on_server("GRA015")
def common_multiple(view: LaunchView) -> Iterator[Hit]:
    """FlashComm1 and speculation."""
    tp, rows = view.tp, 1 + view.num_draft_tokens
    if not (view.has_flashcomm1 and view.has_full_decode_graphs and rows > 1 and tp > 1):
        return
    if max(tp, rows) % tp or max(tp, rows) % rows:
        message = f"sizes would have to be multiples of {tp} and of {rows}; one must divide the other"
        node = view.key("--speculative-config", "num_speculative_tokens")
        yield Hit("GRA015", node.place if node else view.launch.place, message)
