"""The demo model of Qanat as a folder of checkpoint files."""

from pathlib import Path

__all__ = ["model_path"]


def model_path() -> Path:
    """The folder with config.json, model.safetensors, the tokenizer and the chat template."""
    return Path(__file__).resolve().parent / "model"
