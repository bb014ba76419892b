"""Prints the bytes that Qanat and its dependencies take in this environment; pip and what came with it aside."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

CAME_WITH_THE_ENVIRONMENT = ("pip", "setuptools")


def main() -> int:
    """Adds up the files of every distribution."""
    files: set[Path] = set()
    for distribution in distributions():
        if distribution.metadata["Name"] not in CAME_WITH_THE_ENVIRONMENT:
            files.update(Path(str(file.locate())) for file in distribution.files or [])
    print(sum(file.stat().st_size for file in files if file.is_file()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
