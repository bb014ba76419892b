"""What is to run, and on what: model, weights, accelerator and release, looked up by the names of a wish."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from qanat.deploy.knowledge.base import Knowledge
from qanat.deploy.knowledge.kinds.chips import Chip
from qanat.deploy.knowledge.kinds.models import ModelFacts, WeightFormat, Weights
from qanat.deploy.knowledge.kinds.releases import Release
from qanat.deploy.knowledge.versions import Version, is_in_range, must_parse, parse_image
from qanat.deploy.plan.errors import ImpossibleWish
from qanat.deploy.plan.wish import Wish

REGISTRY = "quay.io/ascend/vllm-ascend"
MTP_SUFFIX = "-mtp"


@dataclass(frozen=True)
class Subject:
    """Model, weights, accelerator and release of a deployment.

    Attributes:
        model: its sizes.
        weights: the variant.
        is_published: a repository of the weights is known.
        chip: the accelerator.
        npus_per_node: NPUs of a node that may be used.
        memory_gib: nominal memory of one NPU.
        version: of vllm-ascend.
        release: what is known of it; None if nothing is.
        image: with its tag.
    """

    model: ModelFacts
    weights: Weights
    is_published: bool
    chip: Chip
    npus_per_node: int
    memory_gib: float
    version: Version
    release: Release | None
    image: str


def find_model(name: str, knowledge: Knowledge) -> ModelFacts:
    """The model that a name, repository or path means.

    Raises:
        ImpossibleWish: no known model; names those that are near.
    """
    for model in knowledge.models:
        if re.search(rf"(?:^|[/_\\\W]){model.pattern}(?![\w.])", name.lower()):
            return model
    names = [model.name for model in knowledge.models]
    raise ImpossibleWish(f"--model {name}: no known model. {_near(name, names)}", param="--model")


def find_chip(name: str, knowledge: Knowledge) -> Chip:
    """The accelerator that a name of a machine or chip means.

    Raises:
        ImpossibleWish: no known accelerator.
    """
    text = re.sub(r"[-_\s]+", " ", name).strip()
    for chip in knowledge.chips:
        if text.lower() == chip.name.lower():
            return chip
        if any(re.search(spelling, text, re.ASCII | re.IGNORECASE) for spelling in chip.spellings):
            return chip
    names = [chip.name for chip in knowledge.chips]
    raise ImpossibleWish(f"--hardware {name}: no known machine. {_near(name, names)}", param="--hardware")


def _near(name: str, names: Iterable[str]) -> str:
    known = list(names)
    lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.rsplit("/", 1)[-1].lower(), lower, n=1, cutoff=0.5)
    hint = f"Did you mean {lower[near[0]]}? " if near else ""
    return f"{hint}Known are: {', '.join(known)}."


def stated_variant(wish: Wish, knowledge: Knowledge) -> str | None:
    """The variant that the wish names, by --weights or in the model's name; None if it names none.

    Raises:
        ImpossibleWish: --weights is no known format, or contradicts the model's name.
    """
    formats = knowledge.tables["weight_formats"].entries
    named = _variant_in(wish.model, formats)
    if wish.weights is None:
        return named or ("bf16" if wish.model.lower().startswith("qwen/") else None)
    variant = wish.weights.lower().removesuffix(MTP_SUFFIX)
    if variant not in formats:
        why = f"--weights {wish.weights}: no known format. {_near(variant, formats)}"
        raise ImpossibleWish(why, param="--weights")
    if named is not None and named != variant:
        candidates = [msgspec.structs.replace(wish, weights=named)]
        why = f"--weights {wish.weights} contradicts the model's name {wish.model}, which says {named}."
        raise ImpossibleWish(why, param="--weights", candidates=candidates)
    return variant


def _variant_in(name: str, formats: Iterable[str]) -> str | None:
    """The longest name of a format that stands in a model's name."""
    found = [one for one in formats if re.search(rf"[-_]{re.escape(one)}(?![a-z0-9])", name.lower())]
    return max(found, key=len, default=None)


def find_weights(model: ModelFacts, variant: str, knowledge: Knowledge) -> tuple[Weights, bool]:
    """What is known of a variant, and whether it is published; hybrid models bring their drafter."""
    for weights in knowledge.tables["weights"].entries.values():
        if weights.model == model.name and weights.variant == variant:
            return weights, bool(weights.repository)
    guess = Weights(
        name=f"{model.name} {variant}",
        source="no document names these weights",
        confidence="unverified",
        model=model.name,
        variant=variant,
        has_drafter=model.is_hybrid,
    )
    return guess, False


def published_variants(model: ModelFacts, knowledge: Knowledge) -> list[str]:
    """Variants of a model with a known repository."""
    table = knowledge.tables["weights"].entries.values()
    return [one.variant for one in table if one.model == model.name and one.repository]


def runs_on(variant: str, chip: Chip, knowledge: Knowledge) -> bool:
    """Whether a chip computes in this format."""
    form: WeightFormat = knowledge.tables["weight_formats"].entries[variant]
    return chip.family in form.families


def needs_download(wish: Wish) -> bool:
    """Whether `vllm serve` is given a repository rather than a folder."""
    return wish.model_path is None and not wish.model.startswith("/")


def first_version(model: ModelFacts, weights: Weights, chip: Chip) -> Version:
    """The first release that runs this model with these weights on this chip."""
    firsts = [model.first_release, weights.first_release, chip.first_release]
    return max(must_parse(one) for one in firsts if one)


def find_release(
    wish: Wish, model: ModelFacts, weights: Weights, chip: Chip, knowledge: Knowledge
) -> tuple[Version, str]:
    """The release and the image with its tag: the one that was asked for, else the newest stable one.

    Raises:
        ImpossibleWish: no version can be read, it is for another chip, too old for the model, or not known yet.
    """
    first = first_version(model, weights, chip)
    suffix = f"-{chip.image_suffix}" if chip.image_suffix else ""
    if wish.image is None:
        stable = [must_parse(one.name) for one in knowledge.releases if one.is_stable]
        version = max(stable)
        return version, f"{REGISTRY}:v{version}{suffix}"
    tag = parse_image(wish.image)
    if tag is None:
        why = f"--image {wish.image} names no version of vllm-ascend; something like v0.18.0rc1-a3 does."
        raise ImpossibleWish(why, param="--image", candidates=[msgspec.structs.replace(wish, image=None)])
    _check_age(wish, tag.version, first, model, chip, knowledge)
    suffixes = {one.image_suffix for one in knowledge.chips if one.image_suffix} & set(tag.suffixes)
    if suffixes and suffixes != {chip.image_suffix}:
        own = chip.image_suffix or "none"
        why = f"--image {wish.image} is for another chip: {chip.name} has the suffix {own}."
        bare = msgspec.structs.replace(wish, image=str(tag.version))
        raise ImpossibleWish(why, param="--image", candidates=[bare])
    others = "".join(f"-{one}" for one in tag.suffixes if one not in suffixes)
    name = wish.image.rpartition(":")[0] if ":" in wish.image.rsplit("/", 1)[-1] else REGISTRY
    return tag.version, f"{name}:v{tag.version}{suffix}{others}"


def _check_age(
    wish: Wish, version: Version, first: Version, model: ModelFacts, chip: Chip, knowledge: Knowledge
) -> None:
    newest = max(must_parse(one.name) for one in knowledge.releases)
    oldest = min(must_parse(one.name) for one in knowledge.releases)
    ends = (newest, first) if version > newest else (first, newest)
    images = [str(ends[0]), None, str(ends[1])]
    candidates = [msgspec.structs.replace(wish, image=image) for image in images]
    if not is_in_range(version, str(first), None):
        why = f"--image {wish.image}: {model.name} with these weights on {chip.name} needs {first} or newer."
        raise ImpossibleWish(why, param="--image", candidates=candidates)
    if not oldest.base <= version.base <= newest.base:
        why = f"--image {wish.image}: releases from {oldest} to {newest.base} are known."
        raise ImpossibleWish(why, param="--image", candidates=candidates)


def resolve(wish: Wish, variant: str, knowledge: Knowledge) -> Subject:
    """Everything that names mean, for one variant of the weights.

    Raises:
        ImpossibleWish: something does not go together.
    """
    model, chip = find_model(wish.model, knowledge), find_chip(wish.hardware, knowledge)
    weights, is_published = find_weights(model, variant, knowledge)
    version, image = find_release(wish, model, weights, chip, knowledge)
    npus = wish.npus_per_node or chip.num_npus_per_node
    if not 1 <= npus <= chip.num_npus_per_node:
        why = f"--npus-per-node {npus}: a node of {chip.name} has {chip.num_npus_per_node}."
        candidates = [msgspec.structs.replace(wish, npus_per_node=None)]
        raise ImpossibleWish(why, param="--npus-per-node", candidates=candidates)
    return Subject(
        model=model,
        weights=weights,
        is_published=is_published,
        chip=chip,
        npus_per_node=npus,
        memory_gib=wish.npu_memory_gib or chip.memory_gib,
        version=version,
        release=knowledge.release(version),
        image=image,
    )
