"""The two spellings of a setting: `max_model_len` in Python, `--max-model-len` on the command line."""

from __future__ import annotations


def flag_of(field: str) -> str:
    """The flag of a field, with its dashes."""
    return "--" + field.replace("_", "-")


def field_of(flag: str) -> str:
    """The field of a flag, given with its dashes or without."""
    return flag.removeprefix("--").replace("-", "_")
