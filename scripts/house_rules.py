"""The rules of the house that neither ruff, mypy nor import-linter know; scripts/check runs them.

house_rules.py [FOLDER]     checks the checkout (or FOLDER), prints `path:line: what is wrong`, exit code 1 if any
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
ENVIRONMENT_FILE = "src/qanat/config/env.py"
DEVICE_FOLDERS = ("src/qanat/platforms/", "src/qanat/kernels/")
DEVICE_NAMES = re.compile(r"\btorch\.cuda\b|\btorch_npu\b|\btriton\b")
ENVIRONMENT_NAMES = ("environ", "environb", "getenv", "putenv")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
BASE_FOLDERS = ("core", "config", "cache", "deploy", "evals", "router", "scheduler", "server", "cli")


class Fault(NamedTuple):
    """A broken rule and its place."""

    path: str
    line: int
    message: str


def check_file(path: str, text: str) -> Iterator[Fault]:
    """All faults of one Python file of the package; `path` is relative to the checkout, with slashes."""
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES:
        yield Fault(
            path, len(lines), f"{len(lines)} lines; a file has at most {MAX_FILE_LINES}: split it by idea"
        )
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield Fault(path, number, "unfinished work is an issue, not a comment")
    tree = ast.parse(text)
    yield from _check_functions(path, tree)
    yield from _check_names(path, tree)
    package = path.removeprefix("src/qanat/").split("/")[0]
    if package in BASE_FOLDERS:
        yield from _check_torch(path, tree)


def _check_functions(path: str, tree: ast.Module) -> Iterator[Fault]:
    if path.startswith("src/qanat/kernels/"):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            num_lines = node.end_lineno - node.lineno + 1
            if num_lines > MAX_FUNCTION_LINES:
                message = f"{node.name} has {num_lines} lines; a function has at most {MAX_FUNCTION_LINES}"
                yield Fault(path, node.lineno, message)


def _check_names(path: str, tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        for name in _dotted_names(node):
            line = getattr(node, "lineno", 1)
            if DEVICE_NAMES.search(name) and not path.startswith(DEVICE_FOLDERS):
                yield Fault(path, line, f"{name}: devices are the business of platforms/ and kernels/")
            is_environment = name.startswith("os.") and name.split(".")[1] in ENVIRONMENT_NAMES
            if is_environment and path != ENVIRONMENT_FILE:
                yield Fault(path, line, f"{name}: the environment is read in {ENVIRONMENT_FILE} only")
            if name.split(".")[0] == "transformers":
                yield Fault(path, line, "transformers is for tests")


def _dotted_names(node: ast.AST) -> Iterable[str]:
    """Names that a node mentions as a whole: `torch.cuda` of an attribute, an import or a from-import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module or ''}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return [f"{node.value.id}.{node.attr}"]
    return []


def _check_torch(path: str, tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        for name in _dotted_names(node) if isinstance(node, ast.Import | ast.ImportFrom) else []:
            if name.split(".")[0] == "torch":
                yield Fault(path, getattr(node, "lineno", 1), "this layer works without torch")


def check_package(root: Path) -> list[Fault]:
    """All faults of the package in a checkout."""
    faults: list[Fault] = []
    for file in sorted((root / "src" / "qanat").rglob("*.py")):
        faults.extend(check_file(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")))
    return faults


def main(arguments: list[str]) -> int:
    """Checks and prints."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    faults = check_package(root)
    for fault in faults:
        print(f"{fault.path}:{fault.line}: {fault.message}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
