"""What is found out before the run: the model's name, its tokenizer, and how the server counts tokens."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qanat.bench.client.client import Client
from qanat.bench.client.load import Load, Planned
from qanat.bench.client.recording import Store
from qanat.bench.online.answer import Answer, read_answer
from qanat.bench.online.bodies import COUNTINGS, Api
from qanat.bench.online.prompts.prompt import Prompt
from qanat.bench.online.prompts.vocabulary import Tokenize, Vocabulary, learn_vocabulary, unchecked
from qanat.bench.online.target import Target, json_of, model_names, wait_until_ready
from qanat.bench.online.wish import ServeWish
from qanat.core.errors import ConfigError

PROBE_LEN, PROBE_OUTPUT_LEN = 12, 4
UNREACHABLE = ("refused", "unreachable", "tls", "no_http")
"""Failures that no later request would be spared."""


@dataclass(frozen=True)
class Prepared:
    """What is known before the run.

    Attributes:
        api: how requests are written.
        vocabulary: what random prompts are made of.
        tokenize: counts texts; None where nobody can.
        probe: the answer to a short request, which does not count.
        notes: what is to be said of it.
    """

    api: Api
    vocabulary: Vocabulary
    tokenize: Tokenize | None
    probe: Answer
    notes: tuple[str, ...]

    @property
    def is_hopeless(self) -> bool:
        """True if no request can succeed: nothing answers, or it refuses what we are and ask for."""
        failure = self.probe.failure
        return failure in UNREACHABLE or (
            failure.startswith("http_4") and failure not in ("http_408", "http_429")
        )


async def prepare(wish: ServeWish, client: Client, store: Store) -> Prepared:
    """Asks the server.

    Raises:
        ConfigError: the model has no name, or the tokenizer's folder is of no use.
    """
    if wish.ready_timeout_s > 0:
        await wait_until_ready(client, wish.target, wish.ready_timeout_s)
    notes: list[str] = []
    names = [wish.model] if wish.model else await model_names(client, wish.target)
    model = names[0] if names else ""
    if not names:
        notes.append("the server names no model: --model does")
    if len(names) > 1:
        notes.append(f"the server names {', '.join(names)}: {model} is measured; --model chooses")
    tokenize, source = await _tokenizer(wish, client, model)
    vocabulary = await learn_vocabulary(tokenize, source) if tokenize is not None else None
    vocabulary = vocabulary or unchecked()
    api = Api(
        backend=wish.backend,
        model=model,
        sampling=wish.sampling,
        ignores_eos=wish.ignores_eos,
        is_streamed=wish.is_streamed,
        extra=wish.extra,
    )
    api, probe = await _probe(wish, client, store, api, vocabulary)
    return Prepared(api, vocabulary, tokenize, probe, tuple(notes))


async def _probe(
    wish: ServeWish, client: Client, store: Store, api: Api, vocabulary: Vocabulary
) -> tuple[Api, Answer]:
    """A short request: the first way of counting tokens that is not refused."""
    source = random.Random(f"probe {wish.dataset.seed} {time.time_ns()}")
    ids = vocabulary.draw_ids(PROBE_LEN, source) if not api.is_chat else None
    text = vocabulary.draw_text(PROBE_LEN, source)
    prompt = Prompt(ids, text, PROBE_LEN, PROBE_OUTPUT_LEN)
    refused: tuple[Api, Answer] | None = None
    for counting in COUNTINGS:
        tried = replace(api, counting=counting)
        request = wish.target.post(tried.body(prompt), request_id=f"{wish.request_id_prefix}probe")
        answer = (await run_apart(client, store, [request]))[0]
        if answer.failure not in ("http_400", "http_422"):
            return tried, answer
        refused = refused or (tried, answer)
    assert refused is not None
    return refused


async def run_apart(
    client: Client, store: Store, requests: Iterable[bytes], max_concurrency: int = 1
) -> list[Answer]:
    """Sends requests that do not count; their answers."""
    load = Load(client, max_concurrency=max_concurrency, is_closed_loop=True)
    record = await load.run([Planned(number, 0.0, request) for number, request in enumerate(requests)])
    answers = []
    for recording in record.recordings:
        answers.append(read_answer(recording, store.read(recording), record.start_ns, has_text=False))
        recording.forget()
    return answers


async def _tokenizer(wish: ServeWish, client: Client, model: str) -> tuple[Tokenize | None, str]:
    """The server's tokenizer, else the one in the folder that was named."""

    async def by_server(text: str) -> list[int] | None:
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        return ids_in(json_of(await client.ask(wish.target.post(body, "/tokenize"))))

    if await by_server("of the"):
        return by_server, "the server's /tokenize"
    if wish.tokenizer is not None and Path(wish.tokenizer).expanduser().is_dir():
        return _by_folder(Path(wish.tokenizer).expanduser()), f"{wish.tokenizer}/tokenizer.json"
    return None, ""


def ids_in(value: object) -> list[int] | None:
    """The ids in an answer of /tokenize."""
    tokens = value.get("tokens") if isinstance(value, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        return None
    return tokens


def _by_folder(folder: Path) -> Tokenize:
    """A tokenizer.json of this machine.

    Raises:
        ConfigError: there is none, it cannot be read, or the library for it is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError(
            f"--tokenizer {folder}: the server has no /tokenize, and a folder is read by the tokenizers library: pip "
            "install tokenizers",
            param="--tokenizer",
        ) from None
    try:
        tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # the library raises Exception itself
        raise ConfigError(f"--tokenizer {folder}: {error}", param="--tokenizer") from None

    async def by_folder(text: str) -> list[int] | None:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    return by_folder


def profile_request(target: Target, action: str) -> bytes:
    """The request that starts or stops the server's profile."""
    return target.post({}, f"/{action}_profile")
