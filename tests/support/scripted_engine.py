"""A real engine over a model that says what it is told to: the harness kind `http-scripted`.

Everything but the model is the real thing: front end, admission, scheduler, cache, text assembly. A made-up tokenizer
has one token for each byte, the special tokens of Qwen3.5, and one token for each piece of a script.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import msgspec
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from qanat.cache.manager import HybridCacheManager
from qanat.cache.spec import cache_spec
from qanat.config.model_config import ModelConfig
from qanat.config.profiler import ProfilerSettings
from qanat.config.resolved import CacheLimits, ResolvedConfig, SchedulerLimits
from qanat.core.batch import NewRow, RowOutput, ScheduledBatch, StepOutput, TokenLogprobs
from qanat.core.errors import EngineDeadError, QanatError, StructuredOutputError
from qanat.core.memory_plan import MemoryPlan
from qanat.core.sampling_params import SamplingParams
from qanat.engine.async_engine import AsyncEngine
from qanat.engine.constraints import vocabulary_of
from qanat.engine.core import EngineCore
from qanat.engine.messages import (
    AbortRequest,
    AddRequests,
    CallReply,
    FromCore,
    Ready,
    ResetPrefixes,
    StepDone,
    ToCore,
)
from qanat.engine.replica import Seat, Started
from qanat.engine.shared_constraints import SharedConstraints
from qanat.engine.tokenizer import Tokenizer
from qanat.scheduler.scheduler import Scheduler
from qanat.structured.factory import FormFactory
from qanat.structured.matcher import has_bit
from qanat.worker.row_form import FormBuffer, RowForm

VOCAB_SIZE = 8192
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAG_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
END_OF_TURN = "<|im_end|>"
FILLER = b"."
BLANKS = b" \n\t\r"
MODEL_FIELDS = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 8,
    "max_position_embeddings": 4096,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.25},
}

BLOCK_SIZE = 64

Piece = str | bytes


class ScriptedTokenizer(Tokenizer):
    """One token per byte, plus special tokens and whatever pieces scripts ask for."""

    def __init__(self, chat_template: str | None = None) -> None:
        base = Tokenizer.bytes_only(make_model_config())
        vocab = base._tokenizer.get_vocab()
        backend = HfTokenizer(models.BPE(vocab=vocab, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens(list(SPECIAL_TOKENS))
        backend.add_tokens(list(TAG_TOKENS))
        eos_ids = tuple(backend.token_to_id(text) for text in (END_OF_TURN, "<|endoftext|>"))
        super().__init__(backend, eos_token_ids=eos_ids, chat_template=chat_template)
        self._piece_ids: dict[bytes, int] = {}

    def piece_id(self, piece: Piece) -> int:
        """The token that stands for exactly this piece; special spellings are the special tokens."""
        if isinstance(piece, str):
            known = self.token_id(piece)
            if known is not None and known >= 256:
                return known
            piece = piece.encode()
        if piece not in self._piece_ids:
            self._piece_ids[piece] = len(self._bytes)
            self._bytes.append(piece)
            self.vocab_size = len(self._bytes)
        return self._piece_ids[piece]


@dataclass
class Script:
    """What the model says to requests that are admitted from now on; after the pieces it ends the turn."""

    token_ids: list[int]
    tokens_per_step: int = 1


@dataclass
class _Row:
    request: NewRow
    script: Script
    num_known: int
    num_computed: int
    num_output: int = 0
    position: int = 0
    num_blocks: int = 0
    scored: int = field(default=1)
    form: RowForm | None = None


class ScriptedExecutor:
    """Emits the script's tokens with probability near 1; a token that is masked is passed over.

    Under a form, tokens of the script that it does not allow are passed over too. Where the script has nothing left
    that is allowed, what brings a form to its end soonest comes: the end of the turn, a closing bracket or quote, else
    the allowed byte with the lowest id that is no blank, else a tag.
    """

    def __init__(self, tokenizer: ScriptedTokenizer, plan: MemoryPlan, config: ResolvedConfig) -> None:
        self.memory_plan = plan
        self.collective_s = 0.0
        self._config = config
        self._forms: tuple[int, FormFactory, FormBuffer] | None = None
        self.script = Script([])
        self._tokenizer = tokenizer
        self._rows: dict[int, _Row] = {}
        self._scripts: dict[str, Script] = {}

    def assign(self, request_id: str) -> None:
        """Fixes the script of a request: the one that is set when it arrives."""
        self._scripts[request_id] = self.script

    def execute(self, batch: ScheduledBatch) -> Future[StepOutput]:
        """Computes a step at once."""
        for row in batch.freed_rows:
            self._rows.pop(row, None)
        for new in batch.new_rows:
            num_output = len(new.token_ids) - new.num_prompt_tokens
            script = self._scripts[new.request_id]
            row = _Row(new, script, len(new.token_ids), new.num_computed_tokens, num_output)
            row.num_blocks = len(new.block_ids)
            if new.constraint is not None:
                factory, buffer = self._form_tools()
                row.form = RowForm(new.constraint, factory, buffer, new.stop_token_ids, [])
            for token_id in new.token_ids[new.num_prompt_tokens :]:
                self._choose(row)
                self._follow(row, token_id)
            self._rows[new.row] = row
        for scheduled in batch.rows:
            self._rows[scheduled.row].num_blocks += len(scheduled.new_block_ids)
        outputs = [self._step(self._rows[row.row], row.num_scheduled_tokens) for row in batch.rows]
        future: Future[StepOutput] = Future()
        future.set_result(StepOutput(batch.step_id, outputs))
        return future

    def op_table(self) -> list[str]:
        """There are no kernels."""
        return []

    def shutdown(self) -> None:
        """Nothing to release."""

    def _step(self, row: _Row, num_tokens: int) -> RowOutput:
        row.num_computed += num_tokens
        request = row.request
        scores = self._score_prompt(row)
        if row.num_computed < row.num_known or request.sampling.max_tokens == 0:
            return RowOutput(request.row, [], prompt_logprobs=scores)
        # All but the newest have a place in the cache.
        num_places = row.num_blocks * BLOCK_SIZE - row.num_known
        num_new = min(row.script.tokens_per_step, 1 + num_places)
        token_ids = []
        while len(token_ids) < num_new and not (row.form is not None and row.form.error):
            token_ids.append(self._choose(row))
            self._follow(row, token_ids[-1])
        if row.form is not None and row.form.error:
            return RowOutput(request.row, [], error=row.form.error, error_code=StructuredOutputError.code)
        row.num_known += num_new
        row.num_computed = row.num_known - 1
        row.num_output += num_new
        logprobs = []
        if request.sampling.logprobs is not None:
            logprobs = [self._score(token_id, request.sampling.logprobs) for token_id in token_ids]
        return RowOutput(request.row, token_ids, logprobs, scores)

    def _score_prompt(self, row: _Row) -> list[TokenLogprobs]:
        num_top = row.request.sampling.prompt_logprobs
        if num_top is None:
            return []
        end = min(row.num_computed, row.request.num_prompt_tokens)
        positions = range(row.scored, end)
        row.scored = max(row.scored, end)
        return [self._score(row.request.token_ids[i], num_top) for i in positions]

    def _score(self, token_id: int, num_top: int) -> TokenLogprobs:
        others = [other for other in range(65, 65 + num_top + 1) if other != token_id]
        top = [token_id, *others][:num_top]
        logprobs = [math.log(0.9) if other == token_id else -5.0 - other / 1000 for other in top]
        return TokenLogprobs([token_id, *top], [math.log(0.9), *logprobs], 1)

    def _form_tools(self) -> tuple[FormFactory, FormBuffer]:
        """Made again when a script has brought new tokens."""
        size = self._tokenizer.vocab_size
        if self._forms is None or self._forms[0] != size:
            vocabulary = vocabulary_of(self._tokenizer, self._config)
            self._forms = (size, FormFactory(lambda: vocabulary), FormBuffer(vocabulary.size))
        return self._forms[1:]

    def _follow(self, row: _Row, token_id: int) -> None:
        if row.form is not None:
            row.form.add_output([token_id])

    def _choose(self, row: _Row) -> int:
        if row.form is None or not row.form.fill_mask():
            return self._next(row)
        _, buffer = self._form_tools()
        end = len(row.script.token_ids)
        while row.position < end:
            token_id, row.position = row.script.token_ids[row.position], row.position + 1
            if has_bit(buffer.words, token_id) and not self._is_masked(row, token_id):
                return token_id
        end_of_turn = self._tokenizer.piece_id(END_OF_TURN)
        in_order = [end_of_turn, *b'}]"', *(byte for byte in range(256) if byte not in BLANKS), *BLANKS]
        in_order += [self._tokenizer.piece_id(tag) for tag in TAG_TOKENS]
        return next(token_id for token_id in in_order if has_bit(buffer.words, token_id))

    def _next(self, row: _Row) -> int:
        """The next token of the script that is not masked."""
        while True:
            position, row.position = row.position, row.position + 1
            if position < len(row.script.token_ids):
                token_id = row.script.token_ids[position]
            elif position == len(row.script.token_ids):
                token_id = self._tokenizer.piece_id(END_OF_TURN)
            else:
                token_id = FILLER[0]
            if not self._is_masked(row, token_id):
                return token_id

    def _is_masked(self, row: _Row, token_id: int) -> bool:
        sampling: SamplingParams = row.request.sampling
        if row.num_output < sampling.min_tokens and token_id in row.request.stop_token_ids:
            return True
        if (sampling.logit_bias or {}).get(token_id, 0) <= -100:
            return True
        allowed = sampling.allowed_token_ids
        return allowed is not None and token_id not in allowed


class InProcessClient:
    """Takes the place of the core's process: the same messages, encoded and decoded, to a core in this loop."""

    def __init__(self, core: EngineCore, executor: ScriptedExecutor) -> None:
        self._core = core
        self._executor = executor
        self._constraints = SharedConstraints()
        self._has_news = asyncio.Event()
        self._replies: deque[CallReply] = deque()
        self._may_step = asyncio.Event()
        self._may_step.set()
        self._num_steps_allowed: int | None = None
        self._is_dead = False
        self.num_aborts = 0

    async def send(self, message: ToCore) -> None:
        """Hands a message to the core."""
        message = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=ToCore)
        if isinstance(message, AddRequests):
            for request in message.read(self._constraints.shared):
                self._executor.assign(request.request_id)
                self._core.add(request)
        elif isinstance(message, AbortRequest):
            self.num_aborts += 1
            self._core.abort(message.request_id)
        elif isinstance(message, ResetPrefixes):
            self._replies.append(self._forget_prefixes(message.call_id))
        self._has_news.set()

    def _forget_prefixes(self, call_id: int) -> CallReply:
        try:
            self._core.reset_prefixes()
        except QanatError as error:
            return CallReply(call_id, None, error.code, error.message)
        return CallReply(call_id)

    async def receive(self) -> FromCore:
        """Steps the core when it has work; returns what it says."""
        await asyncio.sleep(0)
        while not (self._is_dead or self._replies or (self._core.has_work and self._may_step.is_set())):
            self._has_news.clear()
            await self._has_news.wait()
        if self._is_dead:
            raise EngineDeadError("The engine process ended with exit code -9; the server's log has more.")
        if self._replies:
            return self._replies.popleft()
        if self._num_steps_allowed is not None:
            self._num_steps_allowed -= 1
            if self._num_steps_allowed == 0:
                self.hold()
        outputs = self._core.step()
        step = StepDone(outputs, self._core.stats(), self._core.num_steps)
        return msgspec.msgpack.decode(msgspec.msgpack.encode(step), type=StepDone)

    async def ask_for_stacks(self) -> str:
        """There is no process to ask."""
        return "(no process)"

    def last_words(self) -> str:
        """It leaves none."""
        return ""

    async def stop(self) -> None:
        """Nothing to stop."""

    def hold(self) -> None:
        """No step from now on."""
        self._may_step.clear()

    def release(self, num_steps: int | None = None) -> None:
        """Steps go on: all, or so many and then none."""
        self._num_steps_allowed = num_steps
        self._may_step.set()
        self._has_news.set()

    def kill(self) -> None:
        """The core dies."""
        self._is_dead = True
        self._has_news.set()


@dataclass
class ScriptedEngine:
    """A running engine and the strings that move it.

    Attributes:
        engine: what the server talks to.
        tokenizer: made-up.
        executor: says the script.
        client: holds, releases or kills the core.
        core: counts steps and requests.
    """

    engine: AsyncEngine
    tokenizer: ScriptedTokenizer
    executor: ScriptedExecutor
    client: InProcessClient
    core: EngineCore
    cache: HybridCacheManager

    def say(self, pieces: Sequence[Piece], tokens_per_step: int = 1) -> None:
        """Sets the script of requests that arrive from now on."""
        ids = [self.tokenizer.piece_id(piece) for piece in pieces]
        self.executor.script = Script(ids, tokens_per_step)


def start_scripted_engine(
    *,
    model_family: str = "qwen3_5",
    max_model_len: int = 2048,
    max_num_seqs: int = 32,
    max_waiting_requests: int = 256,
    max_queue_wait_s: float | None = None,
    policy: str = "fcfs",
    step_timeout_s: float = 120.0,
    max_num_batched_tokens: int = 512,
    served_model_names: tuple[str, ...] = ("scripted", "scripted-alias"),
    chat_template: str | None = None,
    profiler: ProfilerSettings | None = None,
) -> ScriptedEngine:
    """Builds one; to be called where an event loop runs."""
    tokenizer = ScriptedTokenizer(chat_template)
    model = make_model_config(model_family)
    config = ResolvedConfig(
        model_path="/models/scripted",
        served_model_names=served_model_names,
        model=model,
        dtype="float32",
        scheduler=SchedulerLimits(
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            policy=policy,
            max_waiting_requests=max_waiting_requests,
            max_queue_wait_s=max_queue_wait_s,
        ),
        cache=CacheLimits(),
        profiler=profiler,
        step_timeout_s=step_timeout_s,
    )
    spec = cache_spec(model, block_size=BLOCK_SIZE, kv_dtype="bfloat16")
    plan = MemoryPlan(
        available_bytes=2**30,
        budget_bytes=2**29,
        weight_bytes=0,
        workspace_bytes=0,
        block_size=BLOCK_SIZE,
        block_bytes=spec.block_bytes,
        num_blocks=8192,
        state_bytes=spec.state_bytes,
        num_states=64,
        logits_chunk_rows=64,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
    )
    executor = ScriptedExecutor(tokenizer, plan, config)
    cache = HybridCacheManager(spec, plan.num_blocks, plan.num_states)
    core = EngineCore(Scheduler(config.scheduler, cache, time.monotonic), executor)
    client = InProcessClient(core, executor)
    engine = AsyncEngine(tokenizer, [Started(Seat(), client, Ready(config, plan, [], []))])  # type: ignore[arg-type]
    return ScriptedEngine(engine, tokenizer, executor, client, core, cache)


def make_model_config(model_family: str = "qwen3_5") -> ModelConfig:
    """The shape that the scripted model claims to have."""
    name = {"qwen3_5": "Qwen3_5ForCausalLM", "qwen3": "Qwen3ForCausalLM"}[model_family]
    values = {**MODEL_FIELDS, "architectures": [name]}
    if model_family == "qwen3":
        values["layer_types"] = ["full_attention", "full_attention"]
    return ModelConfig.from_dict(values)
