"""Which torch scripts/setup uses: one that is installed, or what pip would fetch.

torch_choice.py installed        prints the version of an importable torch >= 2.11, or nothing
torch_choice.py examine REPORT   reads `pip install --dry-run --report`; exit code 1 for a CUDA build
"""

from __future__ import annotations

import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path

MIN_VERSION = (2, 11)
TYPICAL_CUDA_BYTES = 3_000_000_000  # measured: torch 2.14.1 for x86-64 with what it needs


def installed_version() -> str:
    """The version of the torch that this interpreter imports, "" if there is none or it is too old."""
    try:
        import torch
    except Exception:  # a broken installation raises whatever its libraries raise
        return ""
    release = str(torch.__version__).split("+")[0].split(".")
    return str(torch.__version__) if tuple(int(part) for part in release[:2]) >= MIN_VERSION else ""


def download_bytes(url: str) -> int | None:
    """Size of a file that pip would fetch; None if its server does not tell."""
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(urllib.request.url2pathname(parts.path)).stat().st_size
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10) as reply:
            return int(reply.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def examine(report: Path) -> list[str]:
    """What to tell the user about the torch in pip's report; empty when it is a CPU build."""
    items = json.loads(report.read_text())["install"]
    gpu_items = [item for item in items if item["metadata"]["name"].lower().startswith(("nvidia-", "cuda-"))]
    if not gpu_items:
        return []
    torch_items = [item for item in items if item["metadata"]["name"].lower() in ("torch", "triton")]
    sizes = [download_bytes(item["download_info"]["url"]) for item in gpu_items + torch_items]
    known = [size for size in sizes if size is not None]
    size = (
        f"{sum(known) / 1e9:.1f} GB"
        if len(known) == len(sizes)
        else f"about {TYPICAL_CUDA_BYTES / 1e9:.0f} GB"
    )
    return [
        f"error: pip's indexes offer a CUDA build of torch: {size} to fetch in {len(sizes)} files, "
        "and more than that on disk. Qanat runs on the CPU here. Two ways on:",
        "  1. an index of CPU builds: PIP_EXTRA_INDEX_URL=<its address> scripts/setup",
        "     (PyTorch's installation page shows the address under: Linux, Pip, Python, CPU)",
        "  2. take the CUDA build all the same: scripts/setup --allow-gpu-torch",
    ]


def main(arguments: list[str]) -> int:
    """Runs one of the two commands of the module docstring."""
    if arguments == ["installed"]:
        print(installed_version())
        return 0
    if len(arguments) == 2 and arguments[0] == "examine":
        messages = examine(Path(arguments[1]))
        print("\n".join(messages), file=sys.stderr, end="\n" if messages else "")
        return 1 if messages else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
