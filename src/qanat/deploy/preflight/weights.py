"""The model folder: complete, whole, of the planned model, quantised as it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from qanat.deploy.knowledge.kinds.models import ModelFacts, QuantisedType
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.preflight.host import Host
from qanat.deploy.preflight.known import failure, good, unknown, warning
from qanat.deploy.preflight.model_folder import ModelFolder, read_folder
from qanat.deploy.preflight.result import Result
from qanat.deploy.preflight.target import Target

FLOAT = "FLOAT"
NUM_EXAMPLES = 3
"""Names shown of a long list."""
SCALING_FLAGS = ("hf-overrides", "rope-scaling")
SIZES = (
    ("num_hidden_layers", "num_layers"),
    ("hidden_size", "hidden_size"),
    ("num_key_value_heads", "num_kv_heads"),
    ("num_attention_heads", "num_query_heads"),
    ("num_experts", "num_experts"),
)
"""Fields of config.json and those of the knowledge base."""
FLOAT_WEIGHTS = ("bf16", "fp16")
"""Variants that are not quantised."""


def check_model(host: Host, target: Target) -> Iterator[Result]:
    """Everything about the folder of the weights."""
    if not target.model_path:
        if target.plan is not None:
            seen = f"{target.plan.model_source} is downloaded by the engine; --model-path checks a folder"
            yield unknown("model-files", seen)
        return
    folder = read_folder(target.model_path)
    if folder is None:
        yield failure("model-files", f"there is no folder {target.model_path}, or it may not be read")
        return
    yield from _files(folder)
    yield from _shards(folder)
    if folder.config is not None:
        yield from _config(folder, target)
        yield from _context(folder, target)
    yield from _quantisation(folder, target)
    yield from _drafter(folder, target)


def _files(folder: ModelFolder) -> Iterator[Result]:
    missing = [] if "config.json" in folder.names else ["config.json"]
    missing += [] if folder.has_tokenizer else ["a tokenizer (tokenizer.json)"]
    if missing:
        yield failure("model-files", f"{folder.path} lacks {' and '.join(missing)}")
    bad = {name: what for name, what in folder.broken.items() if not name.endswith(".safetensors")}
    for name, what in bad.items():
        yield failure("model-files", f"{name} {what}")
    if not missing and not bad:
        yield good("model-files", f"{len(folder.names)} files, configuration and tokenizer among them")


def _shards(folder: ModelFolder) -> Iterator[Result]:
    if not folder.shards:
        yield failure("model-shards", f"{folder.path} has no safetensors files and no index of them")
        return
    broken = [name for name in folder.shards if name in folder.broken]
    for name in broken:
        yield failure("model-shards", f"{name} {folder.broken[name]}")
    index = folder.index or {}
    lost = [
        tensor
        for tensor, file in index.items()
        if file not in folder.broken and folder.files_of.get(tensor) != file
    ]
    if lost:
        yield failure(
            "model-shards", f"{folder.index_name} names tensors that their files do not hold: {_some(lost)}"
        )
    extra = [tensor for tensor in folder.tensors if folder.index is not None and tensor not in index]
    if extra:
        why = "Tensors that are not in the index may be left out, such as those of a drafter."
        yield warning("model-shards", f"tensors that {folder.index_name} does not name: {_some(extra)}", why)
    unread = [name for name in folder.names if name.endswith(".safetensors") and name not in folder.shards]
    if unread:
        why = "They belong to another download, or to weights that the index forgot."
        yield warning("model-shards", f"files that {folder.index_name} does not name: {_some(unread)}", why)
    if not broken and not lost:
        yield good(
            "model-shards", f"{len(folder.shards)} files hold {len(folder.tensors)} tensors as they should"
        )


def _config(folder: ModelFolder, target: Target) -> Iterator[Result]:
    sizes = {ours: folder.text_config.get(theirs, 0) for theirs, ours in SIZES}
    names = folder.config.get("architectures") if folder.config else None
    architecture = str(names[0]) if isinstance(names, list) and names else "no architecture"
    if target.plan is None:
        same = [model.name for model in load_knowledge().models if not _differences(model, sizes)]
        told = f"{architecture}, {sizes['num_layers']} layers" + (
            f": sizes of {' or '.join(same)}" if same else ""
        )
        yield good("model-config", told)
        return
    model = next((each for each in load_knowledge().models if each.name == target.plan.model), None)
    if model is None:
        yield unknown("model-config", f"{target.plan.model} is not known here")
        return
    different = _differences(model, sizes)
    if different:
        told = "; ".join(f"{name} {sizes[name]} instead of {getattr(model, name)}" for name in different)
        yield failure("model-config", f"this is not {model.name}: {told}")
    else:
        yield good("model-config", f"{architecture} with the sizes of {model.name}")


def _differences(model: ModelFacts, sizes: dict[str, Any]) -> list[str]:
    return [name for name, size in sizes.items() if (size or 0) != getattr(model, name)]


def _context(folder: ModelFolder, target: Target) -> Iterator[Result]:
    window = folder.text_config.get("max_position_embeddings")
    wanted = target.integer("max-model-len", 0)
    if not isinstance(window, int) or wanted == 0:
        return
    is_scaled = any(target.flag(flag) is not None for flag in SCALING_FLAGS)
    parameters = folder.text_config.get("rope_parameters") or folder.text_config.get("rope_scaling") or {}
    is_scaled = is_scaled or (isinstance(parameters, dict) and "factor" in parameters)
    if wanted > window and not is_scaled:
        yield failure("model-context", f"--max-model-len {wanted}, the model's window is {window}")
    else:
        yield good(
            "model-context", f"--max-model-len {wanted} of {window}" + (", scaled" if is_scaled else "")
        )


def _drafter(folder: ModelFolder, target: Target) -> Iterator[Result]:
    method = target.key("speculative-config", "method")
    draft = target.key("speculative-config", "model")
    if not isinstance(method, str):
        return
    if "mtp" in method:
        tensors = [name for name in folder.tensors if name.startswith("mtp.") or ".mtp." in name]
        if folder.tensors and not tensors:
            yield failure(
                "model-drafter", f"speculation by {method}, and no tensor of {folder.path.name} is mtp"
            )
        elif tensors:
            yield good("model-drafter", f"{len(tensors)} mtp tensors")
    elif isinstance(draft, str) and draft.startswith(("/", "./", "~")):
        other = read_folder(draft)
        if other is None or other.config is None or not other.tensors:
            yield failure(
                "model-drafter", f"{draft} is no whole model folder", fix="Download the draft model."
            )
        else:
            yield good("model-drafter", f"{draft} has {len(other.tensors)} tensors")


def _quantisation(folder: ModelFolder, target: Target) -> Iterator[Result]:
    weights = target.plan.weights if target.plan else ""
    is_wanted = bool(weights) and not weights.startswith(FLOAT_WEIGHTS)
    if folder.description is None:
        in_config = folder.config is not None and "quantization_config" in folder.config
        if is_wanted and not in_config:
            seen = f"the plan is for {weights}, and the folder has no quant_model_description.json"
            yield failure("model-quantisation", seen)
        return
    if weights.startswith(FLOAT_WEIGHTS):
        yield failure(
            "model-quantisation", f"the plan is for {weights}, and {folder.description_name} says quantised"
        )
    if not folder.tensors:
        return
    yield from _description(folder)


def _description(folder: ModelFolder) -> Iterator[Result]:
    description = {name: kind for name, kind in (folder.description or {}).items() if _is_tensor(name, kind)}
    types: dict[str, QuantisedType] = dict(load_knowledge().tables["quantised_types"].entries)
    strange = sorted({kind for kind in description.values() if kind != FLOAT and kind not in types})
    if strange:
        yield unknown("model-quantisation", f"types that are not known here: {', '.join(strange)}")
    lost = [name for name in description if name not in folder.tensors]
    if lost:
        yield failure("model-quantisation", f"described, but in no file: {_some(lost)}")
    silent = [name for name in folder.tensors if name not in description]
    if silent:
        why = "A tensor that is not described is taken for one that is not quantised."
        yield warning("model-quantisation", f"in a file, but not described: {_some(silent)}", why)
    incomplete, wrong = _weights(folder, description, types)
    if incomplete:
        yield failure("model-quantisation", f"quantised without all that belongs to it: {_some(incomplete)}")
    if wrong:
        yield failure("model-quantisation", f"of another dtype than described: {_some(wrong)}")
    if not lost and not incomplete and not wrong:
        kinds = (
            ", ".join(sorted({kind for kind in description.values() if kind != FLOAT})) or "nothing quantised"
        )
        yield good("model-quantisation", f"{len(description)} tensors as described ({kinds})")


def _weights(
    folder: ModelFolder, description: dict[str, str], types: dict[str, QuantisedType]
) -> tuple[list[str], list[str]]:
    """Weights that lack a companion, and those with the dtype of another type."""
    incomplete, wrong = [], []
    quantised = {dtype for each in types.values() for dtype in each.dtypes} - {"U8"}
    for name, kind in description.items():
        info = folder.tensors.get(name)
        if info is None or not name.endswith(".weight"):
            continue
        if kind == FLOAT and info.dtype in quantised:
            wrong.append(f"{name} is {info.dtype}, described as {kind}")
        if kind not in types:
            continue
        layer = name.removesuffix("weight")
        missing = [suffix for suffix in types[kind].companions if layer + suffix not in folder.tensors]
        if missing:
            incomplete.append(f"{name} ({kind}) lacks {' and '.join(missing)}")
        if info.dtype not in types[kind].dtypes:
            wrong.append(f"{name} is {info.dtype}, described as {kind}")
    return incomplete, wrong


def _is_tensor(name: str, kind: object) -> bool:
    """Metadata of a description has names without a dot, or values that are no type."""
    return "." in name and isinstance(kind, str)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NUM_EXAMPLES])
    return shown + (f" and {len(names) - NUM_EXAMPLES} more" if len(names) > NUM_EXAMPLES else "")
