"""Code that runs at the start of every Python process of a server, before any other."""

from __future__ import annotations

from pathlib import Path


def with_startup_script(folder: Path, code: str) -> dict[str, str]:
    """Variables with which Python runs this code first; in it, `is_core` is true in the engine's process.

    Args:
        folder: an empty one.
        code: the rest of the script.
    """
    head = 'import sys\nis_core = "qanat.engine.core_process" in sys.orig_argv\n'
    (folder / "sitecustomize.py").write_text(head + code)
    return {"PYTHONPATH": str(folder)}
