"""Code that runs at the start of every Python process of a server, before any other."""

from __future__ import annotations

from pathlib import Path

UNHURRIED = """
if is_core:
    import time
    from qanat.engine.core import EngineCore

    plain_step = EngineCore.step

    def unhurried_step(self):
        time.sleep(0.05)
        return plain_step(self)

    EngineCore.step = unhurried_step
    while (folder / "hold-start").exists():
        time.sleep(0.01)
"""
"""Steps take so long that a request of some thousand tokens runs for minutes, however slow the test is beside it; and
no core starts while the folder has a file `hold-start`."""


PACED = """
if is_core:
    import time
    from qanat.engine.core import EngineCore

    plain_step = EngineCore.step

    def paced_step(self):
        if (folder / "slow").exists():
            time.sleep(0.05)
        return plain_step(self)

    EngineCore.step = paced_step
"""
"""Steps take so long while the folder has a file `slow`."""


def with_startup_script(folder: Path, code: str) -> dict[str, str]:
    """Variables with which Python runs this code first; `folder` and `is_core` (true in the engine) are known to it.

    Args:
        folder: an empty one.
        code: the rest of the script.
    """
    head = (
        "import sys\n"
        "from pathlib import Path\n"
        'is_core = "qanat.engine.core_process" in sys.orig_argv\n'
        f"folder = Path({str(folder)!r})\n"
    )
    (folder / "sitecustomize.py").write_text(head + code)
    return {"PYTHONPATH": str(folder)}
