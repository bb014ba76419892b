"""From what `--model` names to a folder: a local one, a model of a hub, or the demo model. No torch."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.core.decision import Decision
from qanat.core.errors import ConfigError

DEMO_PACKAGE = "qanat_demo"
DEMO_NAME = "qanat-demo"
"""What clients call the demo model."""

CONFIG_FILES = ("*.json", "*.jinja", "*.txt")
"""Everything but the weights; all that random weights need."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def locate_model(wishes: EngineConfig, environment: Environment) -> tuple[Path, list[Decision]]:
    """The model's folder; fetches it from a hub if need be, with the hub library's progress bars.

    Raises:
        ConfigError: there is no such model, or it cannot be fetched.
    """
    if wishes.model is None:
        return _demo()
    folder = Path(wishes.model).expanduser()
    if wishes.model and folder.is_dir():
        return folder, []
    if wishes.model and folder.exists():
        raise ConfigError(
            f"--model {wishes.model} is a file; give the folder that holds config.json.", param="--model"
        )
    if not _HUB_ID.fullmatch(wishes.model) or wishes.model.startswith("."):
        raise ConfigError(f"--model {wishes.model}: there is no such folder.", param="--model")
    hub = _MODELSCOPE if environment.switch("VLLM_USE_MODELSCOPE") else _HUGGING_FACE
    return _fetch(hub, wishes)


def _demo() -> tuple[Path, list[Decision]]:
    if importlib.util.find_spec(DEMO_PACKAGE) is None:
        raise ConfigError(
            "No model was named, and the demo model is not installed: give a folder or a hub id as --model, or "
            "install the package qanat-demo.",
            param="--model",
        )
    folder = Path(importlib.import_module(DEMO_PACKAGE).model_path())
    return folder, [Decision("--model", None, DEMO_NAME, "no model was named, so the demo model serves")]


@dataclass(frozen=True)
class _Hub:
    """A hub library; both have `snapshot_download` with the same arguments.

    Attributes:
        name: of the hub.
        module: to import.
        package: to install.
        other: how to use the other hub.
    """

    name: str
    module: str
    package: str
    other: str


_HUGGING_FACE = _Hub(
    "Hugging Face", "huggingface_hub", "huggingface-hub", "set VLLM_USE_MODELSCOPE=True for ModelScope"
)
_MODELSCOPE = _Hub("ModelScope", "modelscope", "modelscope", "unset VLLM_USE_MODELSCOPE for Hugging Face")


def _fetch(hub: _Hub, wishes: EngineConfig) -> tuple[Path, list[Decision]]:
    if importlib.util.find_spec(hub.module) is None:
        raise ConfigError(
            f"--model {wishes.model} is no folder here; to fetch it from {hub.name}: pip install {hub.package} "
            f"({hub.other}).",
            param="--model",
        )
    patterns = list(CONFIG_FILES) + ([] if wishes.load_format == "dummy" else ["*.safetensors"])
    arguments: dict[str, Any] = {"allow_patterns": patterns}
    if wishes.revision is not None:
        arguments["revision"] = wishes.revision
    if wishes.download_dir is not None:
        arguments["cache_dir"] = wishes.download_dir
    try:
        library = importlib.import_module(hub.module)
        folder = str(library.snapshot_download(wishes.model, **arguments))
    except Exception as error:  # whatever a hub library raises: no network, no such model, no permission
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(
            f"--model {wishes.model} is no folder here and could not be fetched from {hub.name}: "
            f"{reason.rstrip('.')}. Fetch it elsewhere and give the folder, or {hub.other}.",
            param="--model",
        ) from error
    return Path(folder), [Decision("--model", wishes.model, folder, f"fetched from {hub.name}")]
