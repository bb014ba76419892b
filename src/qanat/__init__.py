"""Qanat serves the Qwen3, Qwen3.5 and Qwen3.6 language models.

The public names are loaded when they are first used, so that `import qanat` needs neither torch nor time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qanat.config.engine_config import EngineConfig
    from qanat.core.sampling_params import SamplingParams
    from qanat.core.structured_outputs import StructuredOutputsParams
    from qanat.engine.async_engine import AsyncEngine
    from qanat.entrypoints.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncEngine", "EngineConfig", "SamplingParams", "StructuredOutputsParams", "__version__"]

_HOMES = {
    "LLM": "qanat.entrypoints.llm",
    "AsyncEngine": "qanat.engine.async_engine",
    "EngineConfig": "qanat.config.engine_config",
    "SamplingParams": "qanat.core.sampling_params",
    "StructuredOutputsParams": "qanat.core.structured_outputs",
}


def __getattr__(name: str) -> Any:
    """Imports a public name from where it lives."""
    if name not in _HOMES:
        raise AttributeError(f"module 'qanat' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
