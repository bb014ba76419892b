"""`qanat serve`: reads the wishes, says what was decided, and serves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qanat.cli.command import MODEL_WORD, Command, Invocation, help_parser, read_invocation, wants_help
from qanat.cli.main import exit_code_of
from qanat.cli.terminal import check_template, decision_lines, require_engine, tell
from qanat.config.engine_config import GROUPS
from qanat.config.prepare import prepare
from qanat.core.affinity import keep_off
from qanat.core.errors import QanatError
from qanat.core.log_lines import JSON_FORMAT, write_log

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Serve."""


COMMAND = Command(
    name="serve",
    summary="Serve a model over the OpenAI API.",
    description=(
        "Serves a model over the OpenAI API.\n\n"
        "Flags are those of `vllm serve` where the meaning is the same. Flags that only vLLM has are accepted and\n"
        "named at the start with what becomes of them. --flag=value, --flag value, --no-flag and _ for - are all\n"
        "understood; JSON values also key by key: --compilation-config.cudagraph_mode NONE."
    ),
    examples=(
        "qanat serve",
        "qanat serve ./Qwen3.5-0.8B --port 8010 --max-model-len 32k --served-model-name qwen3.5",
        "qanat serve --config server.yaml",
    ),
    groups=GROUPS,
    own=ServeOptions,
    word=MODEL_WORD,
    word_help="Folder or hub id of the model; the same as --model.",
)


def main(arguments: Sequence[str]) -> int:
    """Serves until it is told to stop.

    Args:
        arguments: the command line without `qanat serve`.

    Raises:
        QanatError: the server cannot start.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    invocation = read_invocation(COMMAND, arguments)
    write_log(invocation.wishes.log_format, (invocation.wishes.log_level or "info").upper())
    if invocation.wishes.log_format != JSON_FORMAT:
        return _serve(invocation, tell)
    try:
        return _serve(invocation, log.info)
    except QanatError as error:
        log.critical("qanat serve: error: %s", error.message)
        return exit_code_of(error)


def _serve(invocation: Invocation, say: Callable[[str], None]) -> int:
    require_engine(COMMAND.name)
    prepared = prepare(invocation.wishes, invocation.environment)
    check_template(prepared)
    for line in decision_lines(prepared.decisions):
        say(line)
    keep_off(prepared.config.cpu_binding)  # what computes is started from here and binds itself
    if prepared.config.parallel.node_rank > 0:
        from qanat.executor.node_process import run_node

        return run_node(prepared.config)
    if prepared.config.parallel.is_headless:
        from qanat.engine.remote.headless import serve_headless

        return serve_headless(prepared.config, say)
    from qanat.server.run import serve

    return serve(prepared)
