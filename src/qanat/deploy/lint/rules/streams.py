"""Streams of the device that the capture of graphs takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from qanat.deploy.knowledge.versions import must_parse
from qanat.deploy.lint.files import DocumentView
from qanat.deploy.lint.memory import captured
from qanat.deploy.lint.registry import Hit, on_document, on_server
from qanat.deploy.lint.rules.graphs import listed, sizes_place
from qanat.deploy.lint.rules.text import DRIVER, MIN_DRIVER
from qanat.deploy.lint.view import SPECULATIVE, LaunchView
from qanat.deploy.sizing.capture import (
    DEFAULT_MAX_CAPTURE,
    DEFAULT_MAX_NUM_SEQS,
    MAX_STREAMS,
    max_num_graphs,
    thin_out,
)
from qanat.deploy.sizing.streams import DEVICE_STREAMS, Capture

PRUNED_UNTIL = must_parse("0.20.2rc1")
"""Up to here the list of piecewise graphs is cut to a budget of 1800 streams."""
MIN_CANN = (8, 5)
STATED_MODES = ("PIECEWISE", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY", "FULL")
_COMMENTED = re.compile(r"^[ \t]*#.*", re.MULTILINE)


def capture_of(view: LaunchView) -> Capture | None:
    """What a server captures; None if its model is not known."""
    if view.model is None:
        return None
    overlap = view.is_key_on("multistream_overlap_shared_expert")
    groups = sum(size > 1 for size in (view.tp, view.dp)) + view.is_expert_parallel
    groups += 1 if overlap is not None and overlap.is_on else 0
    mode = view.variable("HCCL_OP_EXPANSION_MODE")
    return Capture(
        num_layers=view.model.num_layers,
        num_draft_layers=_num_draft_layers(view),
        num_groups=groups,
        is_moe=view.model.is_moe,
        is_dp=view.dp > 1,
        is_aiv=mode is not None and mode.value.text == "AIV",
    )


def _num_draft_layers(view: LaunchView) -> int:
    is_eager = view.key(SPECULATIVE, "enforce_eager")
    return 1 if view.num_draft_tokens and not (is_eager and is_eager.value is True) else 0


def _num_graphs(view: LaunchView) -> tuple[int, int]:
    """How many sizes are captured in pieces, and how many whole."""
    num = len(captured(view))
    mode = view.graph_mode
    if mode in (None, "FULL_AND_PIECEWISE"):
        return num, (num if view.version > PRUNED_UNTIL else 0)
    return (num, 0) if mode == "PIECEWISE" else (0, num)


@on_server("GRA008", "GRA018", "GRA019")
def streams(view: LaunchView) -> Iterator[Hit]:
    """Lists against the streams of a device whose driver is not known."""
    capture = capture_of(view)
    if view.is_eager or capture is None or view.graph_mode not in (None, *STATED_MODES):
        return
    num_piecewise, num_full = _num_graphs(view)
    if view.version > PRUNED_UNTIL:
        need = capture.num_streams(num_piecewise, num_full)
        is_chosen = view.graph_mode is not None or view.capture_sizes
        if need > DEVICE_STREAMS and is_chosen:
            message = (
                f"{_counted(view)} take about {need} streams; drivers before 25.5.1 have {DEVICE_STREAMS}"
            )
            yield Hit("GRA019", sizes_place(view), message, _advice(view, capture))
        return
    num = _max_num_pruned(capture)
    if num_piecewise > num:
        message = f"{_counted(view)}; streams allow {max(1, num)}"
        yield Hit(
            "GRA008" if view.capture_sizes else "GRA018",
            sizes_place(view),
            message,
            f"such as {listed(_proposal(view, num))}; or FULL_DECODE_ONLY",
        )


def _counted(view: LaunchView) -> str:
    layers = f"{view.model.num_layers} layers" if view.model else "the layers"
    drafter = " and a drafter" if _num_draft_layers(view) else ""
    given = "sizes" if view.capture_sizes else "default sizes"
    return f"{len(captured(view))} {given} for {layers}{drafter}"


def _advice(view: LaunchView, capture: Capture) -> str:
    """Sizes that fit: the smallest and the largest stay, so every decode batch is captured."""
    is_both = _num_graphs(view)[1] > 0
    num = next((n for n in range(len(captured(view)), 2, -1) if _fits(capture, n, is_both)), 2)
    return f"driver 25.5.1 or newer; else sizes such as {listed(_proposal(view, num))}, or FULL_DECODE_ONLY"


def _fits(capture: Capture, num: int, is_both: bool) -> bool:
    return capture.num_streams(num, num if is_both else 0) <= MAX_STREAMS


def _proposal(view: LaunchView, num: int) -> tuple[int, ...]:
    """So many of the sizes, the smallest and the largest decode batch among them."""
    rows = (view.integer("--max-num-seqs") or DEFAULT_MAX_NUM_SEQS) * (1 + view.num_draft_tokens)
    largest = min(rows, view.max_num_batched_tokens or rows, DEFAULT_MAX_CAPTURE)
    sizes = sorted({size for size in captured(view) if size < largest} | {largest})
    return thin_out(tuple(sizes), max(2, num))


@on_document("GRA011")
def old_drivers(view: DocumentView) -> Iterator[Hit]:
    """Lists against the streams of the driver or CANN that the files name."""
    driver = _driver(view)
    for server in view.servers():
        capture = capture_of(server)
        old = f"driver {driver}" if driver else _old_cann(server)
        if old is None or capture is None or server.is_eager:
            continue
        num_piecewise, num_full = _num_graphs(server)
        if server.version <= PRUNED_UNTIL and num_piecewise:
            kept = min(num_piecewise, max(1, _max_num_pruned(capture)))
            if capture.num_draft_layers and kept < num_piecewise:
                need = capture.num_streams(kept, 0)
                message = (
                    f"{_counted(server)} are cut to {kept}, which take about {need} streams; with {old} and a "
                    "drafter captures failed there"
                )
                yield Hit("GRA011", sizes_place(server), message, _advice(server, capture))
            continue
        need = capture.num_streams(num_piecewise, num_full)
        if need > DEVICE_STREAMS:
            message = f"{_counted(server)} take about {need} streams; with {old} there are {DEVICE_STREAMS}"
            yield Hit("GRA011", sizes_place(server), message, _advice(server, capture))


def _old_cann(server: LaunchView) -> str | None:
    """The CANN of the image if it is one before 8.5."""
    release = server.knowledge.release(server.version)
    numbers = re.match(r"(\d+)\.(\d+)", (release.cann or "") if release else "")
    is_old = numbers is not None and (int(numbers.group(1)), int(numbers.group(2))) < MIN_CANN
    return f"CANN {release.cann}" if release and is_old else None


def _max_num_pruned(capture: Capture) -> int:
    """How many sizes of piecewise graphs the releases that cut the list leave."""
    return max_num_graphs(
        capture.num_layers,
        capture.num_draft_layers,
        capture.num_groups,
        capture.is_moe,
        capture.is_dp,
        capture.is_aiv,
    )


def _driver(view: DocumentView) -> str | None:
    """The oldest driver that the text, or a comment, names, if it is one before 25.5.1."""
    texts = [line for _, line in view.prose()]
    texts += [match.group() for match in _COMMENTED.finditer(view.document.text)]
    found = [match.group(1) for text in texts for match in DRIVER.finditer(text)]
    old = [one for one in found if tuple(map(int, one.split("."))) < MIN_DRIVER]
    return min(old, default=None)
