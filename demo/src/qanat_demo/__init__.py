"""The demo model of Qanat as a folder of checkpoint files, and held-out tasks that it was never trained on."""

from pathlib import Path

__all__ = ["model_path", "tasks_path"]


def model_path() -> Path:
    """The folder with config.json, model.safetensors, the tokenizer and the chat template."""
    return Path(__file__).resolve().parent / "model"


def tasks_path() -> Path:
    """A file of held-out questions with their right answers, one JSON object a line, as `qanat eval` reads them."""
    return Path(__file__).resolve().parent / "held_out.jsonl"
