"""Offline generation in one process: `LLM(model).generate(prompts, SamplingParams(...))`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from qanat.config.engine_config import EngineConfig
from qanat.config.env import Environment
from qanat.config.prepare import prepare
from qanat.config.wishes import from_keywords
from qanat.core.constraint import Thinking
from qanat.core.decision import Decision
from qanat.core.errors import InvalidRequestError
from qanat.core.profile import ProfileReport
from qanat.core.sampling_params import SamplingParams
from qanat.core.speculation import SpeculationCounts
from qanat.engine.sync_engine import SyncEngine
from qanat.entrypoints.results import Completion, Generation
from qanat.server.encoding import PromptEncoder
from qanat.server.messages import Message, normalise_messages
from qanat.server.renderer import ChatRenderer, RenderedPrompt, check_chat_options, load_template
from qanat.server.sampling_defaults import read_sampling_defaults
from qanat.server.tools.choice import checked_tools

Prompt = str | Sequence[int]
Conversation = Sequence[Mapping[str, Any]]


class LLM:
    """A loaded model. Use as a context manager, or call `shutdown` to give the memory back early.

    Args:
        model: folder of a checkpoint, or its id on a hub; None takes the demo model.
        **options: any flag of `qanat serve` by its name with underscores, e.g. max_model_len=4096.

    Attributes:
        config: the resolved configuration.
        decisions: every setting that was derived or overridden, with the reason.
        memory_plan: what was allocated.

    Raises:
        ConfigError: an unknown or impossible option.
        CheckpointError: the model cannot be served.
        CapacityError: it does not fit the memory.
    """

    def __init__(self, model: str | Path | None = None, **options: Any) -> None:
        self._start(from_keywords({"model": model, **options}), None)

    @classmethod
    def of(cls, wishes: EngineConfig, environment: Environment | None = None) -> LLM:
        """The model that these wishes ask for.

        Args:
            wishes: what the arguments of the constructor are turned into.
            environment: variables that were read with them; those of this process unless given.

        Raises:
            QanatError: as the constructor does.
        """
        llm = cls.__new__(cls)
        llm._start(wishes, environment)
        return llm

    def _start(self, asked: EngineConfig, environment: Environment | None) -> None:
        prepared = prepare(_in_one_process(asked), environment)
        wishes = prepared.wishes
        check_chat_options(wishes.chat_template, wishes.default_chat_template_kwargs)
        defaults, decisions = read_sampling_defaults(
            wishes.generation_config, wishes.override_generation_config, prepared.config.model_path
        )
        self._default_sampling_params = SamplingParams(**defaults)
        self._engine = SyncEngine(prepared.config, [*prepared.decisions, *decisions])
        self.decisions = self._engine.decisions
        self.config = self._engine.config
        self.memory_plan = self._engine.memory_plan
        self._encoder = PromptEncoder(self._engine.tokenizer, self.config.scheduler.max_model_len)
        template = load_template(
            wishes.chat_template,
            self._engine.tokenizer,
            self.config.model.model_family,
            self.config.model.hidden_size,
        )
        self._renderer = ChatRenderer(
            template, self._engine.tokenizer, self._encoder, wishes.default_chat_template_kwargs
        )

    def get_default_sampling_params(self) -> SamplingParams:
        """What holds where no sampling_params are given: the recommendation of the checkpoint's authors."""
        return self._default_sampling_params

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, as `generate` reads it."""
        return self._encoder.encode(text)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_progress_bar: bool = False,
    ) -> list[Generation]:
        """Completes each prompt.

        Args:
            prompts: a text, token ids, or a list of either.
            sampling_params: one for all prompts or one each; default `get_default_sampling_params()`.
            use_progress_bar: show finished prompts on the terminal.

        Raises:
            InvalidRequestError, ContextLengthError: a prompt or setting cannot be served; nothing is generated.
        """
        prompt_list = _as_prompts(prompts)
        texts = [prompt if isinstance(prompt, str) else None for prompt in prompt_list]
        token_ids = [
            self._encoder.encode(prompt) if isinstance(prompt, str) else list(prompt)
            for prompt in prompt_list
        ]
        return self._run(
            token_ids, texts, self._for_each(sampling_params, len(prompt_list)), use_progress_bar
        )

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        use_progress_bar: bool = False,
    ) -> list[Generation]:
        """Replies to each conversation.

        Args:
            messages: one conversation or a list of them, in OpenAI's form.
            sampling_params: as for `generate`.
            tools: definitions to render for every conversation.
            chat_template_kwargs: template variables, e.g. {"enable_thinking": False}.
            use_progress_bar: as for `generate`.

        Raises:
            InvalidRequestError, ContextLengthError: a conversation cannot be served; nothing is generated.
        """
        rendered_tools = checked_tools(tools)
        prompts = [
            self._renderer.render_now(conversation, rendered_tools, chat_template_kwargs)
            for conversation in _as_conversations(messages)
        ]
        token_ids = [prompt.token_ids for prompt in prompts]
        params = self._for_each(sampling_params, len(token_ids))
        return self._run(token_ids, [None] * len(token_ids), params, use_progress_bar, prompts)

    def speculation_counts(self) -> SpeculationCounts:
        """What became of drafts since the start."""
        return self._engine.stats().speculation

    def reset_prefix_cache(self) -> None:
        """Forgets what is cached of earlier prompts, on disk too."""
        self._engine.reset_prefix_cache()

    def start_profile(self) -> None:
        """Records steps from now on; needs `profiler_config={"torch_profiler_dir": ...}`.

        Raises:
            ProfilerStateError: a profile is recorded or written already, or profiling is switched off.
            ProfileWriteError: the folder cannot be written to.
        """
        self._engine.start_profile()

    def stop_profile(self) -> ProfileReport:
        """Ends the profile and waits for its files.

        Raises:
            ProfilerStateError: there is no profile.
            ProfileWriteError: its files could not be written.
        """
        return self._engine.stop_profile()

    def shutdown(self) -> None:
        """Gives model and cache back."""
        self._engine.shutdown()
        self._encoder.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def _for_each(
        self, sampling_params: SamplingParams | Sequence[SamplingParams] | None, num_prompts: int
    ) -> list[SamplingParams]:
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            return [sampling_params or self._default_sampling_params] * num_prompts
        if len(sampling_params) != num_prompts:
            raise InvalidRequestError(
                f"There are {num_prompts} prompts but {len(sampling_params)} sampling_params; give one for all or one "
                "each.",
                param="sampling_params",
            )
        return list(sampling_params)

    def _run(
        self,
        token_ids: list[list[int]],
        texts: list[str | None],
        sampling_params: list[SamplingParams],
        use_progress_bar: bool,
        rendered: Sequence[RenderedPrompt] = (),
    ) -> list[Generation]:
        results = [
            Generation(text, ids, [Completion(index) for index in range(params.n)])
            for ids, text, params in zip(token_ids, texts, sampling_params, strict=True)
        ]
        num_open = [params.n for params in sampling_params]
        try:
            for index, (ids, params) in enumerate(zip(token_ids, sampling_params, strict=True)):
                prompt = rendered[index] if rendered else None
                self._engine.add(
                    str(index),
                    ids,
                    params,
                    thinking=prompt.thinking if prompt is not None else Thinking.NONE,
                    boundaries=prompt.boundaries if prompt is not None else (),
                )
            with _progress(len(results), use_progress_bar) as advance:
                for owner, event in self._engine.run():
                    results[int(owner)].add(event)
                    if event.finish_reason is not None:
                        num_open[int(owner)] -= 1
                        advance(num_open[int(owner)] == 0)
        finally:  # after an error or an interrupt, nothing is left queued for the next call
            self._engine.abort_all()
        return results


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _as_conversations(messages: Conversation | Sequence[Conversation]) -> list[list[Message]]:
    is_single = not messages or isinstance(messages[0], Mapping)
    conversations = [messages] if is_single else messages
    return [normalise_messages(conversation) for conversation in conversations]  # type: ignore[arg-type]


@contextlib.contextmanager
def _progress(total: int, is_shown: bool) -> Iterator[Any]:
    """A function to call with True for each finished prompt."""
    with Progress(transient=True, disable=not is_shown) as progress:
        task = progress.add_task("generating", total=total)
        yield lambda is_finished: progress.advance(task, int(is_finished))


def _in_one_process(wishes: EngineConfig) -> EngineConfig:
    """Without further replicas, which is said."""
    size = wishes.data_parallel_size
    if size == 1:
        return wishes
    why = "LLM computes in its own process; `qanat serve` and AsyncEngine have replicas"
    note = Decision("--data-parallel-size", size, 1, why)
    return dataclasses.replace(wishes, data_parallel_size=1, notes=(*wishes.notes, note))
