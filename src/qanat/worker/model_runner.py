"""One step on the device: inputs, forward pass, logits where they are needed, tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.config.graphs import GraphSettings
from qanat.core.batch import RowOutput, ScheduledBatch, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import InvalidRequestError, StructuredOutputError
from qanat.models.decoder import CausalLM
from qanat.platforms.groups import ParallelGroup, SingleGroup
from qanat.worker.batch_inputs import RowWork, update_rows
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.graphs.maker import GraphMaker
from qanat.worker.graphs.runner import Forward, GraphRunner, Scores
from qanat.worker.logprobs import token_logprobs
from qanat.worker.row_form import FormBuffer
from qanat.worker.row_state import FormMaker, RowState, RowTable
from qanat.worker.sampler import NO_TOKEN, sample_tokens

NOT_FINITE = (
    "The model's scores for this request are not finite numbers. If it happens again, try --dtype float32 and "
    "check the checkpoint."
)
NOTHING_LEFT = (
    "No token may be chosen: allowed_token_ids, bad_words, logit_bias, min_tokens and the form together exclude all. "
    "Loosen one of them."
)


@dataclass(frozen=True)
class RunnerLimits:
    """Sizes that the runner keeps to.

    Attributes:
        num_rows: batch rows.
        max_blocks_per_row: KV blocks of the longest request.
        block_size: tokens in a block.
        logits_chunk_rows: rows for which logits are computed at a time.
        num_valid_token_ids: ids from here on are padding of the vocabulary and never chosen.
        is_nan_check_enabled: end a request whose logits are not finite.
    """

    num_rows: int
    max_blocks_per_row: int
    block_size: int
    logits_chunk_rows: int
    num_valid_token_ids: int
    is_nan_check_enabled: bool = True


_Pair = tuple[RowWork, RowOutput]


@dataclass(frozen=True)
class _PromptTarget:
    """A prompt token whose log-probability is wanted: the logits of `place` tell it."""

    place: int
    token_id: int
    num_top: int
    output: RowOutput


class ModelRunner:
    """Holds the rows and runs steps.

    Args:
        model: with its weights.
        cache: its cache tensors.
        limits: see RunnerLimits.
        matcher_factory: for rows whose output has a form; without it there may be none.
        group: the ranks that share the model; None for one. Rank 0 chooses the tokens and tells the others; what the
            others report is to be left aside.
        graphs: which steps run as graphs; None for none.
        maker: makes them; needed where there are any.
    """

    def __init__(
        self,
        model: CausalLM,
        cache: CacheTensors,
        limits: RunnerLimits,
        matcher_factory: MatcherFactory | None = None,
        group: ParallelGroup | None = None,
        graphs: GraphSettings | None = None,
        maker: GraphMaker | None = None,
    ) -> None:
        self._group: ParallelGroup = group or SingleGroup()
        self._limits = limits
        forms = None
        if matcher_factory is not None:
            forms = FormMaker(matcher_factory, FormBuffer(limits.num_valid_token_ids))
        self._table = RowTable(limits.num_rows, limits.max_blocks_per_row, limits.num_valid_token_ids, forms)
        self._passes = GraphRunner(
            model,
            self._table,
            cache,
            limits.block_size,
            graphs or GraphSettings(),
            maker,
            limits.logits_chunk_rows,
            limits.num_valid_token_ids,
        )

    def run(self, batch: ScheduledBatch) -> StepOutput:
        """Computes a step.

        Raises:
            IntegrityError: the batch contradicts what the rows hold.
        """
        return self._run(batch, is_profiled=False)

    def use_graphs(self, settings: GraphSettings) -> None:
        """Changes which steps run as graphs from the next one on; the sizes stay."""
        self._passes.use_settings(settings)

    def run_profiled(self, batch: ScheduledBatch) -> StepOutput:
        """The same without graphs, so that every op shows in a profile."""
        return self._run(batch, is_profiled=True)

    def _run(self, batch: ScheduledBatch, is_profiled: bool) -> StepOutput:
        works = update_rows(self._table, batch)
        # What can be done before the pass is: it leaves nothing of this code in the processor's caches.
        outputs = [RowOutput(work.row, []) for work in works]
        pairs = list(zip(works, outputs, strict=True))
        asked = [pair for pair in pairs if pair[0].num_prompt_logprobs]
        sampled = [pair for pair in pairs if pair[0].samples]
        forward = self._passes.run(works, is_profiled)
        for work in works:
            work.state.num_computed_tokens = work.end
        if asked:
            self._report_prompt(asked, forward.hidden)
        self._sample(sampled, forward, forward.scores if len(sampled) == len(works) else None)
        _drop_failed(outputs)
        return StepOutput(batch.step_id, outputs, forward.use)

    def _sample(self, pairs: Sequence[_Pair], forward: Forward, ready: Scores | None) -> None:
        """Chooses the next token of each of these rows, a chunk of scores at a time; `ready` are the scores of all."""
        if ready is not None:
            chunks: Iterable[tuple[slice, Scores]] = [(slice(len(pairs)), ready)]
        else:
            places = [work.offset + work.end - work.start - 1 for work, _ in pairs]
            chunks = self._score_chunks(places, forward.hidden)
        for chunk, scores in chunks:
            part = pairs[chunk]
            if self._group.rank == 0:
                self._choose(part, scores)
            if self._group.size > 1:
                self._tell(part)

    def _choose(self, pairs: Sequence[_Pair], scores: Scores) -> None:
        states = [work.state for work, _ in pairs]
        tokens = sample_tokens(scores.logits, states, self._limits.num_valid_token_ids, scores.best.tolist())
        is_finite = self._are_finite(scores)
        for i, (work, output) in enumerate(pairs):
            if not is_finite[i]:
                output.error = NOT_FINITE
            elif tokens[i] == NO_TOKEN:
                output.error, output.error_code = _why_nothing_is_left(work.state)
            elif not output.error:
                output.token_ids.append(tokens[i])
                work.state.append([tokens[i]])
        _report_chosen(pairs, scores.logits)

    def _tell(self, pairs: Sequence[_Pair]) -> None:
        """Brings the tokens that rank 0 has just chosen to the other ranks' rows; NO_TOKEN where there is none."""
        chosen = [output.token_ids[-1] if output.token_ids else NO_TOKEN for _, output in pairs]
        tokens = self._group.broadcast(torch.tensor(chosen)).tolist()
        if self._group.rank > 0:
            for token, (work, _) in zip(tokens, pairs, strict=True):
                if token != NO_TOKEN:
                    work.state.append([token])

    @torch.inference_mode()
    def _report_prompt(self, pairs: Sequence[_Pair], hidden: Tensor) -> None:
        """Log-probabilities of the prompt tokens that follow the positions computed now."""
        targets = [
            _PromptTarget(work.offset + i, int(token_id), work.state.sampling.prompt_logprobs or 0, output)
            for work, output in pairs
            for i, token_id in enumerate(
                work.state.tokens(work.start + 1, work.start + 1 + work.num_prompt_logprobs)
            )
        ]
        for chunk, scores in self._score_chunks([target.place for target in targets], hidden):
            if self._group.rank > 0:
                continue
            part = targets[chunk]
            is_finite = self._are_finite(scores)
            entries = token_logprobs(scores.logits, [t.token_id for t in part], [t.num_top for t in part])
            for i, target in enumerate(part):
                target.output.prompt_logprobs.append(entries[i])
                if not is_finite[i]:
                    target.output.error = NOT_FINITE

    def _score_chunks(self, places: Sequence[int], hidden: Tensor) -> Iterator[tuple[slice, Scores]]:
        """(which of the places, the scores of their rows), so many at a time as the memory plan allows."""
        step = self._limits.logits_chunk_rows
        for start in range(0, len(places), step):
            chunk = slice(start, start + step)
            own = places[chunk]
            is_run = own[-1] - own[0] + 1 == len(own)
            yield chunk, self._passes.scores(hidden[own[0] : own[-1] + 1] if is_run else hidden[own])

    def _are_finite(self, scores: Scores) -> list[bool]:
        """Of each row; all true if the check is switched off."""
        if not self._limits.is_nan_check_enabled:
            return [True] * len(scores.best)
        finite: list[bool] = scores.are_finite.tolist()
        return finite


def _why_nothing_is_left(state: RowState) -> tuple[str, str]:
    """Message and code for a row without a token to choose."""
    if state.form is not None and state.form.error:
        return state.form.error, StructuredOutputError.code
    return NOTHING_LEFT, InvalidRequestError.code


def _report_chosen(pairs: Sequence[_Pair], logits: Tensor) -> None:
    """Log-probabilities of the tokens just chosen, for the rows that want them."""
    wanting = [
        (i, work.state.sampling.logprobs, output)
        for i, (work, output) in enumerate(pairs)
        if work.state.sampling.logprobs is not None and output.token_ids
    ]
    if not wanting:
        return
    rows = logits[: len(pairs)] if len(wanting) == len(pairs) else logits[[i for i, _, _ in wanting]]
    entries = token_logprobs(
        rows, [output.token_ids[-1] for _, _, output in wanting], [top for _, top, _ in wanting]
    )
    for (_, _, output), entry in zip(wanting, entries, strict=True):
        output.logprobs.append(entry)


def _drop_failed(outputs: Iterable[RowOutput]) -> None:
    """A row that failed reports nothing but its error."""
    for output in outputs:
        if output.error:
            output.token_ids, output.logprobs, output.prompt_logprobs = [], [], []
