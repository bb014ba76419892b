"""`qanat chat`: a conversation in the terminal, or one question and its answer."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from qanat.cli.chat_client import ChatClient, ServerError
from qanat.cli.command import Command, Invocation, help_parser, read_invocation, wants_help
from qanat.cli.terminal import check_template, decision_lines, echo, require_engine, tell
from qanat.config.engine_config import (
    OPTIONS,
    CacheOptions,
    EngineConfig,
    ExecutionOptions,
    ModelOptions,
    SchedulerOptions,
)
from qanat.config.options import option, options_of
from qanat.config.parallel_options import ParallelOptions
from qanat.config.prepare import prepare
from qanat.config.values import Kind

ENGINE_GROUPS: tuple[type, ...] = (
    ModelOptions,
    CacheOptions,
    SchedulerOptions,
    ParallelOptions,
    ExecutionOptions,
)
COMMANDS_HELP = "/reset forgets the conversation, /exit (or Ctrl-D) ends it, Ctrl-C stops an answer."
DIM, PLAIN = "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, kw_only=True)
class ChatOptions:
    """Chat."""

    url: str | None = option(
        Kind.TEXT,
        None,
        "Server to talk to, e.g. http://127.0.0.1:8000; any that speaks the OpenAI API. Default: none, a model is "
        "loaded.",
    )
    api_key: str | None = option(
        Kind.TEXT, None, "Key for --url. Default: the variable VLLM_API_KEY.", is_secret=True
    )
    system: str | None = option(Kind.TEXT, None, "System message at the head of the conversation.")
    thinking: bool | None = option(
        Kind.SWITCH, None, "Let the model think before it answers, or not. Default: as its template does."
    )
    temperature: float | None = option(
        Kind.NUMBER, None, "0 takes the most likely token. Default: the server's.", minimum=0, maximum=100
    )
    max_tokens: int | None = option(
        Kind.COUNT, None, "Longest answer in tokens, thinking included. Default: as many as fit.", minimum=1
    )
    verbose: bool = option(Kind.SWITCH, False, "Say every decision that was taken at the start.")


COMMAND = Command(
    name="chat",
    summary="Talk to a model in the terminal.",
    description=(
        "Talks to a model in the terminal: one that is loaded for it, or one that is served elsewhere (--url).\n"
        "With a question the answer goes to standard output, and that is all; thinking is shown in a terminal only."
    ),
    examples=(
        'qanat chat "What is 17 + 25?"',
        "qanat chat -m ./Qwen3.5-0.8B --no-thinking",
        "qanat chat --url http://127.0.0.1:8000",
    ),
    groups=ENGINE_GROUPS,
    own=ChatOptions,
    word="QUESTION",
    word_help="One question; without it a conversation begins.",
)


def main(arguments: Sequence[str]) -> int:
    """Chats; returns the exit code.

    Args:
        arguments: the command line without `qanat chat`.

    Raises:
        QanatError: the model cannot be loaded, or the server cannot be reached.
    """
    if wants_help(arguments):
        help_parser(COMMAND).print_help()
        return 0
    invocation = read_invocation(COMMAND, arguments)
    question = " ".join(invocation.words)
    with _client(invocation) as client:
        conversation = Conversation(client, _model_name(client, invocation), invocation.own)
        if question:
            conversation.ask(question)
            return 0
        return _converse(conversation)


class Conversation:
    """The messages so far and how to get the next one.

    Args:
        client: asks the server.
        model_name: as the server knows it.
        options: of the command.
    """

    def __init__(self, client: ChatClient, model_name: str, options: ChatOptions) -> None:
        self.model_name = model_name
        self._client = client
        self._options = options
        self._messages: list[dict[str, str]] = []
        self.reset()

    def reset(self) -> None:
        """Forgets everything but the system message."""
        system = self._options.system
        self._messages = [{"role": "system", "content": system}] if system else []

    def ask(self, question: str) -> None:
        """Writes the answer as it comes. One that is broken off is forgotten, and so is its question.

        Raises:
            ServerError: the server refuses or breaks off.
        """
        messages = [*self._messages, {"role": "user", "content": question}]
        printer, is_cut = _Printer(), False
        try:
            with contextlib.closing(self._client.stream(self._body(messages))) as deltas:
                for delta in deltas:
                    printer.think(delta.thinking)
                    printer.write(delta.text)
                    is_cut = delta.finish_reason == "length"
        finally:
            printer.end()
        if is_cut:
            tell("(cut off: no more tokens were allowed)")
        self._messages = [*messages, {"role": "assistant", "content": printer.text}]

    def _body(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        options = self._options
        body: dict[str, Any] = {"model": self.model_name, "messages": messages}
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.max_tokens is not None:
            body["max_tokens"] = options.max_tokens
        if options.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": options.thinking}
        return body


class _Printer:
    """Writes thinking dimly, and only to a terminal, before the answer."""

    def __init__(self) -> None:
        self.text = ""
        self._is_terminal = sys.stdout.isatty()
        self._is_thinking = False
        self._ends_line = True

    def think(self, text: str) -> None:
        if text and self._is_terminal:
            if not self._is_thinking:
                self._put(DIM)
                self._is_thinking = True
            self._put(text)

    def write(self, text: str) -> None:
        if text and self._is_thinking:
            self._put(PLAIN + ("\n" if not self._ends_line else ""))
            self._is_thinking = False
        if text and not self.text:
            text = text.lstrip("\n")  # templates leave empty lines between thinking and answer
        self.text += text
        self._put(text)

    def end(self) -> None:
        """Ends the line, once."""
        if self._is_thinking:
            self._put(PLAIN)
            self._is_thinking = False
        if not self._ends_line:
            self._put("\n")

    def _put(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._ends_line = text.endswith("\n") or (self._ends_line and text in (DIM, PLAIN))


def _converse(conversation: Conversation) -> int:
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - line editing and history for input()
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        tell(f"{conversation.model_name} listens. {COMMANDS_HELP}")
    while True:
        try:
            line = input("> " if is_terminal else "").strip()
        except (EOFError, KeyboardInterrupt):
            if is_terminal:
                echo()
            return 0
        if line in ("/exit", "/quit"):
            return 0
        if line == "/reset":
            conversation.reset()
        elif line.startswith("/"):
            tell(f"{line.split()[0]} is no command: {COMMANDS_HELP}")
        elif line:
            try:
                conversation.ask(line)
            except KeyboardInterrupt:
                echo()
            except ServerError as error:
                tell(f"error: {error.message}")


@contextlib.contextmanager
def _client(invocation: Invocation) -> Iterator[ChatClient]:
    """A client of the server that was named, or of one that lives as long as the context."""
    own: ChatOptions = invocation.own
    if own.url is not None:
        _name_engine_flags(invocation.wishes)
        keys = [own.api_key, *invocation.wishes.api_key, invocation.environment.honoured.get("VLLM_API_KEY")]
        yield ChatClient(own.url, next(filter(None, keys), None))
        return
    require_engine(COMMAND.name)
    prepared = prepare(invocation.wishes, invocation.environment)
    check_template(prepared)
    prepared = dataclasses.replace(prepared, wishes=dataclasses.replace(prepared.wishes, api_key=()))
    if own.verbose:
        for line in decision_lines(prepared.decisions):
            tell(line)
    from qanat.cli.local_server import local_server

    tell(f"loading {prepared.config.served_model_names[0]} ...")
    with local_server(prepared) as address:
        yield ChatClient(address)


def _model_name(client: ChatClient, invocation: Invocation) -> str:
    if invocation.own.url is not None and invocation.wishes.model is not None:
        return invocation.wishes.model
    return client.model_name()


def _name_engine_flags(wishes: EngineConfig) -> None:
    """With --url the engine is elsewhere; says so where its flags were given."""
    names = [one.name for group in ENGINE_GROUPS for one in options_of(group) if one.name != "model"]
    given = [OPTIONS[name].flag for name in names if getattr(wishes, name) != OPTIONS[name].default]
    given += [f"--{name}" for name in wishes.foreign_flags]
    if given:
        tell(f"{', '.join(given)} -> no effect: with --url the model runs elsewhere")
