"""Which program a command starts: wrappers passed over, servers, proxies and benchmarks recognised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qanat.deploy.sources.json_text import JsonNode
from qanat.deploy.sources.launch import Flag, Launch, LaunchKind, Role, read_flags
from qanat.deploy.sources.shell import ASSIGNMENT
from qanat.deploy.sources.values import Value

WRAPPERS = frozenset(
    "nohup exec sudo time env numactl taskset nice ionice stdbuf timeout setsid command unbuffer chrt catchsegv "
    "strace gdb msprof then do else".split()
)
SHELLS = frozenset(("bash", "sh", "zsh", "dash", "ash"))
CONTAINER_TOOLS = frozenset(("docker", "podman", "nerdctl"))
PYTHON = re.compile(r"python(\d(\.\d+)?)?$")
SERVER_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
COMMAND_MODULES = ("vllm", "vllm.entrypoints.cli.main")
ROUTER = "qanat router"
PROXY = re.compile(r"(proxy|load_balance|router)\w*\.py$")
BENCHMARK = re.compile(r"benchmark_(serving|latency|throughput)\w*\.py$")
BENCHES = ("serve", "latency", "throughput", "startup", "sweep", "mm-processor")
_FUNCTION = re.compile(r"^[ \t]*(?:function[ \t]+)?([\w-]+)[ \t]*\(\)[ \t]*\{", re.MULTILINE | re.ASCII)
_TELLS = re.compile(r"\b(?:printf|echo|cat|tee|logger|for|set|shift)\b")
"""Lines that do something else with their arguments than to run them."""
KNOWN = frozenset(("vllm", "lm_eval", "lm-eval", "ais_bench", "kubectl", "ray", "ssh", "qanat"))


@dataclass(frozen=True)
class Program:
    """What a command line starts.

    Attributes:
        name: last part of its path, or "".
        words: words behind it.
    """

    name: str
    words: tuple[Value, ...]


@dataclass(frozen=True)
class Recognised:
    """A program whose flags are known.

    Attributes:
        kind: what it does.
        program: how it was named.
        argv: its flags and words.
    """

    kind: LaunchKind
    program: str
    argv: tuple[Value, ...]


def unwrap(argv: Sequence[Value]) -> Program:
    """Passes over nohup, sudo, numactl and their like with the options of each."""
    at = 0
    while at < len(argv) and (ASSIGNMENT.match(argv[at].text) or _base(argv[at]) in WRAPPERS):
        is_wrapper = _base(argv[at]) in WRAPPERS
        at += 1
        if is_wrapper:
            at = _behind_options(argv, at)
    if at >= len(argv):
        return Program("", ())
    return Program(_base(argv[at]), tuple(argv[at + 1 :]))


def forwarders(script: str) -> set[str]:
    """Functions of a script that run the words they are given, such as `in_image() { docker exec it "$@"; }`."""
    found = set()
    for match in _FUNCTION.finditer(script) if '"$@"' in script else ():
        end = script.find("\n}", match.end())
        body = script[match.end() : end if end >= 0 else script.find("}", match.end())]
        if any('"$@"' in line and not _TELLS.search(line) for line in body.split("\n")):
            found.add(match.group(1))
    return found


def _behind_options(argv: Sequence[Value], at: int) -> int:
    """Where a wrapper's own options and values end: at a known program, else at the first word that is none."""
    end = at
    while end < len(argv) and end - at < 20:
        base = _base(argv[end])
        if (
            base in KNOWN
            or base in SHELLS
            or base in CONTAINER_TOOLS
            or base in WRAPPERS
            or PYTHON.match(base)
        ):
            return end
        end += 1
    while at < len(argv) and re.match(r"-|[\d.,]+[smh]?$|0x", argv[at].text):
        at += 1
    return at


def _base(word: Value) -> str:
    return word.text.rsplit("/", 1)[-1]


def nested_script(program: Program) -> tuple[Value, tuple[Value, ...]] | None:
    """The script in `bash -c SCRIPT`, and the words behind it; None if there is none."""
    if program.name in SHELLS:
        for index, word in enumerate(program.words[:-1]):
            if re.fullmatch(r"-\w*c", word.text):
                return program.words[index + 1], program.words[index + 2 :]
            if not word.text.startswith("-"):
                return None
    if program.name == "ssh" and len(program.words) > 1:
        last = program.words[-1]
        return (last, ()) if re.search(r"\s", last.text) else None
    if program.name == "eval" and len(program.words) == 1:
        return program.words[0], ()
    return None


def recognise(program: Program) -> Recognised | None:
    """The server, proxy or benchmark that a program is; None for every other one."""
    words = program.words
    texts = [word.text for word in words]
    if program.name == "vllm" and texts:
        if texts[0] == "serve":
            return Recognised("serve", "vllm serve", words[1:])
        if texts[0] == "bench" and len(texts) > 1 and texts[1] in BENCHES:
            return Recognised("bench", f"vllm bench {texts[1]}", words[2:])
    if program.name == "qanat" and texts[:1] == ["router"]:
        return Recognised("proxy", ROUTER, words[1:])
    if program.name in ("lm_eval", "lm-eval"):
        return Recognised("accuracy", "lm_eval", words)
    if PROXY.search(program.name):
        return Recognised("proxy", program.name, words)
    if PYTHON.match(program.name):
        return _python(words)
    return None


def _python(words: tuple[Value, ...]) -> Recognised | None:
    for index, word in enumerate(words):
        if word.text == "-m" and index + 1 < len(words):
            module = words[index + 1].text
            if module in SERVER_MODULES:
                return Recognised("serve", module, words[index + 2 :])
            if module in COMMAND_MODULES:
                return recognise(Program("vllm", words[index + 2 :]))
            if module == "qanat":
                return recognise(Program("qanat", words[index + 2 :]))
            if module == "lm_eval":
                return Recognised("accuracy", module, words[index + 2 :])
            return None
        if word.text.startswith("-"):
            continue
        base = _base(word)
        if PROXY.search(base):
            return Recognised("proxy", base, words[index + 1 :])
        if BENCHMARK.search(base):
            return Recognised("bench", base, words[index + 1 :])
        if word.text.endswith("openai/api_server.py"):
            return Recognised("serve", base, words[index + 1 :])
        return None
    return None


def guess_role(kind: LaunchKind, flags: tuple[Flag, ...]) -> Role:
    """What part of a deployment a launch is."""
    if kind == "proxy":
        return "proxy"
    if kind in ("bench", "accuracy"):
        return "client"
    by_name = {flag.name: flag for flag in flags}
    transfer = by_name.get("--kv-transfer-config")
    node = transfer.json if transfer else None
    role = node.get("kv_role") if isinstance(node, JsonNode) else None
    if role is not None and role.value in ("kv_producer", "kv_consumer"):
        return "prefill" if role.value == "kv_producer" else "decode"
    if "--headless" in by_name or _number(by_name, "--node-rank") > 0:
        return "worker"
    if _number(by_name, "--data-parallel-start-rank") > 0:
        return "worker"
    ranks, local = _number(by_name, "--data-parallel-size"), _number(by_name, "--data-parallel-size-local")
    if (ranks > local > 0) or _number(by_name, "--nnodes") > 1:
        return "head"
    return "single"


def _number(flags: dict[str, Flag], name: str) -> int:
    flag = flags.get(name)
    text = flag.value.text if flag and flag.value else ""
    return int(text) if re.fullmatch(r"\d{1,9}", text) else 0


def fragment(argv: tuple[Value, ...], section: str) -> Launch:
    """Flags in a guide's text, as a launch without a command."""
    words, flags = read_flags(argv)
    place = argv[0].place
    return Launch("fragment", argv, "", flags, words, {}, None, None, "single", place, -1, section)
