"""Text to token ids without holding the event loop up, and without work that an over-long prompt could multiply."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from qanat.core.errors import ContextLengthError
from qanat.core.fair_places import FairPlaces
from qanat.engine.tokenizer import Tokenizer

MAX_INLINE_CHARS = 2_000
"""Texts up to this length are handled in place: cheaper than handing them to a thread (well under a millisecond)."""
CHARS_PER_ITEM = 20
"""What every text, number, list and object counts for beside its characters: many empty ones take their time too."""
JSON_CHARS_PER_ITEM = 2
"""What each of these takes in JSON at least: quotes, brackets, or a comma and a digit."""
CHARS_PER_TOKEN_BOUND = 8
"""Texts with more characters per token of the window than this are measured by their beginning first."""
CUT_TOLERANCE_TOKENS = 64
"""How many tokens fewer the whole text may have than its beginning: merging across the cut changes only a few."""
NUM_THREADS = 2

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def num_chars_up_to(bound: int, value: object, chars_per_item: int = CHARS_PER_ITEM) -> int:
    """About how much work the texts within a JSON-like value are, in characters.

    Args:
        bound: counting stops beyond it, so that asking is cheap whatever the size.
        value: texts, numbers, and lists and objects of them.
        chars_per_item: what each of these counts for beside its characters.
    """
    num_chars = 0
    open_items: list[Iterator[object]] = [iter((value,))]
    while open_items and num_chars <= bound:
        for item in open_items[-1]:
            num_chars += chars_per_item
            if isinstance(item, str):
                num_chars += len(item)
            elif isinstance(item, Mapping):
                open_items += [iter(item.values()), iter(item)]
                break
            elif isinstance(item, Sequence):
                open_items.append(iter(item))
                break
            if num_chars > bound:
                break
        else:
            open_items.pop()
    return num_chars


class PromptEncoder:
    """Tokenises prompts, long ones in threads of its own; the tokenizer releases the interpreter lock there.

    Args:
        tokenizer: the checkpoint's.
        max_model_len: longest prompt in tokens; much longer texts are refused after a look at their beginning.
    """

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._threads = ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="prompt")
        self._places = FairPlaces(NUM_THREADS)

    def encode(self, text: str, *, field: str = "prompt", seam: str = "") -> list[int]:
        """Token ids of `text`.

        Args:
            text: the prompt.
            field: the request field that it comes from, for the error.
            seam: a text that is left out, and across which no token reaches; none if it is empty.

        Raises:
            ContextLengthError: it surely has more tokens than the window.
        """
        num_probe_chars = self._max_model_len * CHARS_PER_TOKEN_BOUND
        if len(text) > num_probe_chars:
            num_tokens = len(self._encode_pieces(text[:num_probe_chars], seam))
            if num_tokens - CUT_TOLERANCE_TOKENS > self._max_model_len:
                raise ContextLengthError(
                    f"The prompt has more than {num_tokens - CUT_TOLERANCE_TOKENS} tokens; prompt and output together "
                    f"may have at most {self._max_model_len} (--max-model-len). Shorten the prompt.",
                    param=field,
                )
        return self._encode_pieces(text, seam)

    def _encode_pieces(self, text: str, seam: str) -> list[int]:
        if not seam:
            return self._tokenizer.encode(text)
        return [token_id for piece in text.split(seam) for token_id in self._tokenizer.encode(piece)]

    def check_num_parts(self, num_parts: int, *, field: str) -> None:
        """Refuses a prompt of more parts than the window has tokens, before anything is made of them.

        Args:
            num_parts: messages, each of which becomes a token at least.
            field: the request field that they come from, for the error.

        Raises:
            ContextLengthError: they cannot fit.
        """
        if num_parts > self._max_model_len:
            raise ContextLengthError(
                f"{field} has {num_parts} entries; prompt and output together may have at most "
                f"{self._max_model_len} tokens (--max-model-len). Send fewer.",
                param=field,
            )

    def check_json_size(self, value: object, *, field: str) -> None:
        """Refuses what is far longer in JSON than the window, before anything is made of it.

        Args:
            value: becomes a part of a prompt.
            field: the request field that it comes from, for the error.

        Raises:
            ContextLengthError: it is.
        """
        max_chars = self._max_model_len * CHARS_PER_TOKEN_BOUND
        if num_chars_up_to(max_chars, value, JSON_CHARS_PER_ITEM) > max_chars:
            raise ContextLengthError(
                f"{field} has more than {max_chars:,} characters; prompt and output together may have at most "
                f"{self._max_model_len} tokens (--max-model-len). Send less.",
                param=field,
            )

    async def run(
        self,
        owner: str,
        num_chars: int,
        work: Callable[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Does work on a text of this length: in place if it is short, in a thread if not. There owners take turns."""
        if num_chars <= MAX_INLINE_CHARS:
            return work(*args, **kwargs)
        loop = asyncio.get_running_loop()
        await self._places.enter(owner)
        job = self._threads.submit(work, *args, **kwargs)

        def leave(_: Future[Result]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(self._places.leave, owner)

        job.add_done_callback(leave)  # a caller who goes away does not stop the thread
        return await asyncio.wrap_future(job)

    def close(self) -> None:
        """Ends the threads once their present work is done."""
        self._threads.shutdown(wait=False, cancel_futures=True)
