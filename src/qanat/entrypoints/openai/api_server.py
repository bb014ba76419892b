"""`python -m qanat.entrypoints.openai.api_server --model X` is `qanat serve --model X`, for vLLM's scripts."""

from __future__ import annotations

import importlib
import sys


def main() -> int:
    """Runs the command with this process's arguments; returns its exit code."""
    # By name, as `qanat` itself finds its commands: this module stands in for the command line, which lies above it.
    command_line = importlib.import_module("qanat.cli.main")
    return int(command_line.run("serve", sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
