"""What guides claim: nodes that weights need, figures, and the numbers of their sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from qanat.core.errors import ConfigError
from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.models import ModelFacts, Weights
from qanat.deploy.lint.files import DocumentView, FileSet
from qanat.deploy.lint.registry import Hit, on_document, on_files
from qanat.deploy.lint.rules.text import place_inside
from qanat.deploy.sizing.budget import memory_of, visible_bytes
from qanat.deploy.sizing.layout import Layout
from qanat.deploy.sizing.verdict import fits
from qanat.deploy.sources.values import Place

_NODES = re.compile(
    r"(\d+)\s*(?:个|台|x|×)?\s*((?:Atlas|Ascend)[ \w]{1,14}?(?:A2|A3|950DT))\b[^，。,.;；]{0,24}?(?:节点|nodes?\b)",
    re.ASCII,
)
_FORMAT = re.compile(r"\b(w\d+a\d+(?:-mxfp\d)?)\b|\b(bf16)\b", re.IGNORECASE)
_GAIN = re.compile(
    r"提升|减少|降低|较.{0,12}前|improv|faster|gain|higher|lower|reduc|throughput", re.IGNORECASE
)
_FIGURE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(%|ms(?![A-Za-z])|倍)", re.ASCII)
_SECTION = re.compile(r"(?:#+\s*)?(\d{1,2}(?:\.\d{1,2}){1,3})\.?\s+(\S[^|]{0,60})#?\s*")
MIN_ALIKE = 3
"""Figures that two guides share before it is no accident."""
TRIAL_CONTEXT = 8192
TRIAL_SEQUENCES = 16
TRIAL_TOKENS = 4096
"""A small service by which the number of NPUs is judged; the head-room that it leaves is for longer contexts."""
TENSOR_SIZES = (1, 2, 4, 8, 16)


@on_document("TXT008")
def nodes(view: DocumentView) -> Iterator[Hit]:
    """Nodes that a guide asks for, against what the weights need."""
    for place, line in view.prose():
        model = _model_in(view.knowledge, line)
        match = _FORMAT.search(line)
        if model is None or match is None:
            continue
        variant = match.group().lower()
        for claim in _NODES.finditer(line):
            chip = next((one for one in view.knowledge.chips if claim.group(2).endswith(one.name)), None)
            message = _oversized(view.knowledge, model, variant, chip, int(claim.group(1))) if chip else None
            if message is not None:
                yield Hit("TXT008", place_inside(view, place, claim), message)


def _model_in(knowledge: Knowledge, line: str) -> ModelFacts | None:
    text = line.lower()
    return next((one for one in knowledge.models if re.search(rf"{one.pattern}(?![\w.])", text)), None)


def _oversized(
    knowledge: Knowledge, model: ModelFacts, variant: str, chip: Chip, num_nodes: int
) -> str | None:
    """Why fewer nodes, or a part of one, are enough; None if they are not, or nobody can know."""
    is_same = (
        one for one in knowledge.weights if one.model == model.name and one.variant == variant and one.nodes
    )
    stated: Weights | None = next(is_same, None)
    if stated is not None and chip.name in stated.nodes:
        enough = stated.nodes[chip.name]
        if enough < num_nodes:
            nodes_word = "node" if enough == 1 else "nodes"
            return f"{enough} {nodes_word} of {chip.name} for {model.name} {variant}: {stated.source}"
        return None
    num_npus = _num_npus(model, variant, chip)
    if num_npus is not None and 2 * num_npus <= chip.num_npus_per_node * num_nodes:
        holders = f"{num_npus} NPU{'s hold' if num_npus > 1 else ' holds'}"
        return f"{holders} {model.name} {variant} and a cache beside it, on {chip.name}"
    return None


def _num_npus(model: ModelFacts, variant: str, chip: Chip) -> int | None:
    """The smallest number of NPUs of one node that a small service fits on."""
    heads = model.num_linear_key_heads if model.is_hybrid else model.num_query_heads
    for tp in TENSOR_SIZES:
        if tp > chip.num_npus_per_node or heads % tp:
            continue
        try:
            layout = Layout(
                model=model,
                variant=variant,
                npu_bytes=visible_bytes(chip),
                tp=tp,
                max_model_len=TRIAL_CONTEXT,
                max_num_seqs=TRIAL_SEQUENCES,
                max_num_batched_tokens=TRIAL_TOKENS,
            )
            if fits(layout, memory_of(layout)):
                return tp
        except ConfigError:
            return None
    return None


@on_files("TXT007")
def copied_figures(files: FileSet) -> Iterator[Hit]:
    """Guides for different models that claim the same figures."""
    guides = [view for view in files.documents if view.document.kind == "guide"]
    told = [(view, _subject(view), _figures(view)) for view in guides]
    known = [(view, model, figures) for view, model, figures in told if model is not None and figures]
    for (view, model, figures), (other, other_model, other_figures) in combinations(known, 2):
        common = [figure for figure in figures if figure in other_figures]
        is_part = 2 * len(common) >= min(len(figures), len(other_figures))
        if model == other_model or len(common) < MIN_ALIKE or not is_part:
            continue
        for own, there, name in ((figures, other, other_model), (other_figures, view, model)):
            at = f"{there.document.path}, a guide for {name}"
            yield Hit("TXT007", own[common[0]], f"{', '.join(common)} stand in {at}, as well")


def _subject(view: DocumentView) -> str | None:
    """The model that a guide is about: the one its servers serve most."""
    names = [server.model.name for server in view.servers() if server.model is not None]
    return max(sorted(set(names)), key=names.count, default=None)


def _figures(view: DocumentView) -> dict[str, Place]:
    """The gains that a guide claims, with where each is told first."""
    found: dict[str, Place] = {}
    for place, line in view.prose():
        for sentence in re.finditer(r"[^。；;\n]+", line):
            for match in _FIGURE.finditer(sentence.group()) if _GAIN.search(sentence.group()) else ():
                start = place.start + sentence.start() + match.start()
                figure = f"{match.group(1)} {match.group(2)}".replace(" %", "%")
                found.setdefault(figure, view.place(start, start + len(match.group())))
    return found


@on_document("TXT009")
def sections(view: DocumentView) -> Iterator[Hit]:
    """Sections that share a number, and numbers that are left out."""
    titles: dict[tuple[int, ...], str] = {}
    last: tuple[int, ...] = ()
    for place, line in view.prose():
        match = _SECTION.fullmatch(line.strip())
        if match is None:
            continue
        number = tuple(int(part) for part in match.group(1).split("."))
        title = match.group(2).strip().rstrip("#").strip()
        if number in titles:
            if titles[number] != title:
                yield Hit("TXT009", place, f"section {match.group(1)} is there already: {titles[number]}")
            continue
        before = (*number[:-1], number[-1] - 1)
        is_next = number[-1] > 1 and before not in titles and _is_heading(number, last)
        if is_next:
            yield Hit(
                "TXT009", place, f"section {'.'.join(map(str, before))} is missing before {match.group(1)}"
            )
        titles[number] = title
        last = number


def _is_heading(number: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Whether a number goes on where the last one was, at most one left out: figures in a text do not."""
    if number[:-1] == last[: len(number) - 1] and len(last) >= len(number):
        return number[-1] == last[len(number) - 1] + 2
    return number[-1] == 2 and (not last or number[0] > last[0])
