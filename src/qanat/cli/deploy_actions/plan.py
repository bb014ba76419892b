"""`qanat deploy plan`: from cards and wishes to a deployment with a reason for everything in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qanat.cli.command import Command
from qanat.cli.reading import read_action, say, say_json
from qanat.cli.terminal import tell
from qanat.config.options import option
from qanat.config.values import Kind
from qanat.core.errors import ConfigError

if TYPE_CHECKING:
    from qanat.deploy.plan.wish import Wish

SCENARIOS = ("balanced", "low-latency", "high-throughput", "long-context")
TOPOLOGIES = ("single-node", "multi-node", "ray", "pd")


@dataclass(frozen=True, kw_only=True)
class WishFlags:
    """What is asked for."""

    model: str | None = option(
        Kind.TEXT, None, "Name of the model, its repository, or the folder of its weights on the nodes."
    )
    hardware: str | None = option(Kind.TEXT, None, "Machine or chip, e.g. atlas-800-a3, A2, 950DT, 310P.")
    weights: str | None = option(
        Kind.TEXT,
        None,
        "Format of the weights: bf16, w8a8, w4a8, w8a8-mxfp8, w4a4-mxfp4; -mtp at the end says that the drafter is in "
        "them. Default: the best that fits.",
    )
    scenario: str | None = option(
        Kind.TEXT, None, "What the service is for. Default: balanced.", choices=SCENARIOS
    )
    image: str | None = option(
        Kind.TEXT, None, "Release, tag or image of vllm-ascend. Default: the newest stable release."
    )
    topology: str | None = option(
        Kind.TEXT, None, "How engines lie over nodes. Default: the simplest that fits.", choices=TOPOLOGIES
    )
    nodes: int | None = option(Kind.COUNT, None, "Machines. Default: the fewest that hold the model.")
    npus_per_node: int | None = option(
        Kind.COUNT, None, "NPUs of a machine that the service may use. Default: all."
    )
    npu_memory_gib: float | None = option(
        Kind.NUMBER, None, "Nominal memory of one NPU, where the chip comes in several sizes."
    )
    prefill_nodes: int | None = option(Kind.COUNT, None, "Machines of one prefill engine.")
    decode_nodes: int | None = option(Kind.COUNT, None, "Machines of one decode engine.")
    num_prefill: int | None = option(Kind.COUNT, None, "Prefill engines.")
    num_decode: int | None = option(Kind.COUNT, None, "Decode engines.")
    tensor_parallel_size: int | None = option(
        Kind.COUNT, None, "NPUs of one rank; with topology pd of both sides.", aliases=("-tp",)
    )
    data_parallel_size: int | None = option(
        Kind.COUNT, None, "Ranks of an engine; with topology pd of prefill.", aliases=("-dp",)
    )
    decode_tensor_parallel_size: int | None = option(Kind.COUNT, None, "NPUs of one decode rank.")
    decode_data_parallel_size: int | None = option(Kind.COUNT, None, "Ranks of a decode engine.")
    expert_parallel: bool | None = option(Kind.SWITCH, None, "Spread experts whole over NPUs. Default: on.")
    max_model_len: int | None = option(Kind.COUNT, None, "Tokens of the longest request, answer included.")
    concurrency: int | None = option(Kind.COUNT, None, "Requests that run at once over the whole service.")
    max_num_batched_tokens: int | None = option(Kind.COUNT, None, "Tokens of one step.")
    gpu_memory_utilization: float | None = option(
        Kind.NUMBER,
        None,
        "Share of an NPU's memory for weights, activations and cache. Default: from head-room.",
    )
    speculation: str | None = option(
        Kind.TEXT, None, "Speculative decoding. Default: auto.", choices=("auto", "off", "mtp", "eagle3")
    )
    num_speculative_tokens: int | None = option(Kind.COUNT, None, "Tokens drafted per step.")
    draft_model: str | None = option(Kind.TEXT, None, "Repository or folder of an eagle3 draft model.")
    prefix_caching: bool | None = option(Kind.SWITCH, None, "Prefix caching. Default: by model and scenario.")
    language_model_only: bool | None = option(Kind.SWITCH, None, "Leave the vision part out.")
    connector: str | None = option(Kind.TEXT, None, "KV connector of topology pd.")
    proxy: str | None = option(
        Kind.TEXT,
        None,
        "What stands in front with topology pd: the example of vllm-ascend, or `qanat router`. "
        "Default: example.",
        choices=("qanat", "example"),
    )
    model_path: str | None = option(
        Kind.TEXT, None, "Folder of the weights on every node. Default: they are downloaded."
    )
    served_model_name: str | None = option(Kind.TEXT, None, "Name in requests. Default: the model's.")
    addresses: tuple[str, ...] | None = option(
        Kind.TEXTS, None, "IP addresses of the nodes, prefill before decode."
    )
    interface: str | None = option(Kind.TEXT, None, "Network interface of those addresses.")
    port: int | None = option(Kind.COUNT, None, "Port of the engines.")
    proxy_port: int | None = option(Kind.COUNT, None, "Port of the proxy.")
    overrides: tuple[str, ...] | None = option(
        Kind.TEXTS,
        None,
        "Flags of vllm serve that win over the planner's, as NAME=VALUE without dashes; dots lead into JSON: "
        "additional-config.enable_flashcomm1=true.",
    )
    wish: str | None = option(
        Kind.TEXT, None, "YAML file with these flags as keys; flags on the command line win."
    )


@dataclass(frozen=True, kw_only=True)
class PlanFlags(WishFlags):
    """Plan."""

    interactive: bool = option(Kind.SWITCH, False, "Ask for what the flags leave open.")
    output: str | None = option(Kind.TEXT, None, "File to write the plan to, for qanat deploy render.")
    json: bool = option(Kind.SWITCH, False, "Write JSON.")


COMMAND = Command(
    name="deploy plan",
    summary="Plan a vLLM-Ascend service for the machines there are.",
    description=(
        "Say which model is to run on which machines and what for. The plan has everything else: how engines lie\n"
        "over nodes, parallel sizes, limits, speculation, graphs, switches for the release, image, ports, and the\n"
        "memory of an NPU item by item; each choice with its reason, its source and what would change it. It is\n"
        "checked by the rules of `qanat deploy lint`. What cannot be is refused with the nearest wishes that can.\n"
        "Nothing is started, and no machine is asked; `qanat deploy render` makes scripts of a plan."
    ),
    examples=(
        "qanat deploy plan --model Qwen3.5-397B-A17B --hardware atlas-800-a3 --scenario low-latency --concurrency 64",
        "qanat deploy plan --wish wish.yaml --output plan.yaml",
        "qanat deploy plan --interactive",
    ),
    groups=(WishFlags,),
    own=PlanFlags,
    word="",
    word_help="",
    takes_file=False,
)


def main(arguments: Sequence[str]) -> int:
    """`qanat deploy plan`; returns the exit code.

    Raises:
        ConfigError: a flag or the wish file is wrong, or the wish is impossible.
    """
    flags, words = read_action(COMMAND, PlanFlags, arguments)
    if words:
        raise ConfigError(f"{words[0]!r} belongs to no flag; the model is named by --model.")
    wish = read_wish(flags, is_asking=flags.interactive)
    from qanat.deploy.plan.planner import plan
    from qanat.deploy.plan.report import json_report, text_report

    made = plan(wish)
    if flags.output is not None:
        from qanat.deploy.plan.files import encode_plan

        _write(Path(flags.output), encode_plan(made))
        tell(f"the plan is in {flags.output}; qanat deploy render {flags.output} FOLDER makes scripts of it")
    if flags.json:
        say_json(json_report(made))
    else:
        say(text_report(made))
    return 0


def read_wish(flags: WishFlags, is_asking: bool = False) -> Wish:
    """The wish of the file, the flags and the answers; flags win over the file.

    Args:
        flags: as given.
        is_asking: asks at the terminal for what they leave open.

    Raises:
        ConfigError: model or machine is missing, or something cannot be read.
    """
    known = _fields_of_file(flags.wish) if flags.wish is not None else {}
    for one in fields(WishFlags):
        value = getattr(flags, one.name)
        if one.name != "wish" and value is not None:
            known[one.name] = _overrides(value) if one.name == "overrides" else value
    if is_asking:
        return _ask(known)
    for name in ("model", "hardware"):
        if name not in known:
            raise ConfigError(
                f"--{name} is missing, e.g. qanat deploy plan --model Qwen3.5-35B-A3B --hardware atlas-800-a3; "
                "--interactive asks for everything.",
                param=f"--{name}",
            )
    return _converted(known)


def _converted(known: dict[str, Any]) -> Wish:
    import msgspec

    from qanat.deploy.plan.wish import Wish

    return msgspec.convert(known, Wish)


def _fields_of_file(path: str) -> dict[str, Any]:
    """The fields that a wish file states."""
    import msgspec

    from qanat.deploy.plan.files import decode_partial_wish
    from qanat.deploy.text_files import read_text

    text = read_text(Path(path), "--wish")
    known: dict[str, Any] = msgspec.to_builtins(decode_partial_wish(text, path))
    return known


def _overrides(texts: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE words as a mapping.

    Raises:
        ConfigError: a word without = or without a name.
    """
    from qanat.deploy.plan.commands import read_override

    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip("-"):
            raise ConfigError(
                f"--overrides {text}: write NAME=VALUE, e.g. max-num-seqs=32.", param="--overrides"
            )
        found[name] = read_override(value)
    return found


def _ask(known: dict[str, Any]) -> Wish:
    from qanat.deploy.knowledge.load import load_knowledge
    from qanat.deploy.plan.wizard import Wizard

    return Wizard(_ask_at_terminal, tell, load_knowledge()).run(known)


def _ask_at_terminal(question: str) -> str | None:
    """Asks on standard error, so that the plan on standard output stays clean."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
        sys.stderr.write("\n")
    return line.rstrip("\n") if line else None


def _write(path: Path, text: str) -> None:
    from qanat.deploy.text_files import replace_file

    try:
        replace_file(path, text.encode())
    except OSError as error:
        why = f"--output {path} cannot be written: {error.strerror or error}"
        raise ConfigError(why, param="--output") from None
