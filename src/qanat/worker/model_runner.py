"""One step on the device: inputs, forward pass, logits where they are needed, tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qanat.config.graphs import GraphSettings
from qanat.core.batch import RowOutput, ScheduledBatch, StateCopy, StepOutput
from qanat.core.constraint import MatcherFactory
from qanat.core.errors import InvalidRequestError, StructuredOutputError
from qanat.kernels.draws import Draws
from qanat.models.decoder import CausalLM
from qanat.platforms.groups import ParallelGroup, SingleGroup
from qanat.worker.batch_inputs import RowWork, update_rows, with_drafts
from qanat.worker.cache_tensors import CacheTensors
from qanat.worker.drafters.base import Drafter
from qanat.worker.graphs.maker import GraphMaker
from qanat.worker.graphs.runner import Forward, GraphRunner, Scores
from qanat.worker.logprobs import token_logprobs
from qanat.worker.row_form import FormBuffer
from qanat.worker.row_state import FormMaker, RowState, RowTable
from qanat.worker.sampler import NO_TOKEN, draws_of, sample_tokens
from qanat.worker.state_copies import absorb_before_copies, copy_states, keep_draft_rows

ANY_TOKEN = 0
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
        make_drafter: makes what guesses at tokens, which are then verified; None for no speculation.
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
        make_drafter: Callable[[RowTable], Drafter] | None = None,
    ) -> None:
        self._group: ParallelGroup = group or SingleGroup()
        self._limits = limits
        self._model, self._cache = model, cache
        forms = None
        if matcher_factory is not None:
            forms = FormMaker(matcher_factory, FormBuffer(limits.num_valid_token_ids))
        self._table = RowTable(limits.num_rows, limits.max_blocks_per_row, limits.num_valid_token_ids, forms)
        self._drafter = make_drafter(self._table) if make_drafter is not None else None
        self._passes = GraphRunner(
            model,
            self._table,
            cache,
            limits.block_size,
            graphs or GraphSettings(),
            maker,
            limits.logits_chunk_rows,
            limits.num_valid_token_ids,
            None if self._drafter is None else self._drafter.ring,
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
        if batch.state_copies:
            self._ready_states(batch.state_copies)
        works = update_rows(self._table, batch)
        copy_states(self._cache, batch.state_copies)
        if self._drafter is not None:
            self._drafter.begin(batch)
        if not works:
            return StepOutput(batch.step_id, _with_ended(batch, []))
        draft_s = draft_capture_s = 0.0
        if self._drafter is not None:
            works, draft_s, draft_capture_s = self._with_drafts(self._drafter, works)
        # What can be done before the pass is: it leaves nothing of this code in the processor's caches.
        outputs = [RowOutput(work.row, [], num_drafted=len(work.drafts)) for work in works]
        pairs = list(zip(works, outputs, strict=True))
        asked = [pair for pair in pairs if pair[0].num_prompt_logprobs]
        sampled = [pair for pair in pairs if pair[0].samples]
        forward = self._passes.run(works, is_profiled)
        for work in works:
            work.state.num_computed_tokens = work.end - len(work.drafts)
            work.state.num_held = 0  # this step has absorbed them
        if asked:
            self._report_prompt(asked, forward.hidden)
        self._sample(sampled, forward, forward.scores if len(sampled) == len(works) else None)
        if self._drafter is not None:
            start_s = time.monotonic()
            self._drafter.observe(works, forward.hidden, forward.taps)
            draft_s += time.monotonic() - start_s
        _drop_failed(outputs)
        if len(outputs) < len(batch.rows):
            outputs = _with_ended(batch, outputs)
        return StepOutput(batch.step_id, outputs, forward.use, draft_s, draft_capture_s)

    def _ready_states(self, copies: Sequence[StateCopy]) -> None:
        """Brings running states that are about to be copied to where their requests are."""
        if self._cache.held_inputs:
            absorb_before_copies(self._model, self._table, self._cache, copies)
        if self._drafter is not None and self._drafter.ring is not None:
            keep_draft_rows(self._table, self._cache, self._drafter.ring, copies)

    def _with_drafts(self, drafter: Drafter, works: list[RowWork]) -> tuple[list[RowWork], float, float]:
        """The work with drafts where there may be any, the seconds that making them took, and those of capturing."""
        most = [work.max_drafts for work in works]
        if not any(most):
            if works[0].num_known == 1:
                drafter.pause()
            return works, 0.0, 0.0
        start_s = time.monotonic()
        drafts = drafter.propose(works, most)
        spent_s = time.monotonic() - start_s - drafter.capture_s
        return with_drafts(works, drafts), spent_s, drafter.capture_s

    def _sample(self, pairs: Sequence[_Pair], forward: Forward, ready: Scores | None) -> None:
        """Chooses the next tokens of these rows, for a part of them at a time; `ready` are the scores of all."""
        if ready is not None:
            self._verify(pairs, ready)
            return
        for part in _parts(pairs, self._limits.logits_chunk_rows):
            asked = [(work, i) for work, _ in part for i in range(1 + len(work.drafts))]
            places = [work.offset + work.num_known - 1 + i for work, i in asked]
            draws = draws_of([(work.state, work.state.num_tokens + i) for work, i in asked])
            self._verify(part, self._scores(places, forward.hidden, draws))

    def _verify(self, pairs: Sequence[_Pair], scores: Scores) -> None:
        """Chooses the rows' tokens, one of each at a time, for as long as they agree with the drafts (rule R8).

        Args:
            pairs: rows.
            scores: of each row's newest token and its drafts, one row after the other.
        """
        if self._drafter is None or not any(work.drafts for work, _ in pairs):
            self._choose(pairs, scores)
            return
        places, next_place = [], 0
        for work, _ in pairs:
            work.state.num_drafts = 0  # from here on they are taken for nothing
            places.append(next_place)
            next_place += 1 + len(work.drafts)
        index, going = 0, list(range(len(pairs)))
        if self._group.size == 1:
            going = self._take_plain(pairs, places, scores)
        while going:
            part = [pairs[i] for i in going]
            self._choose(part, scores.of([places[i] + index for i in going]))
            going = [i for i in going if _agrees(*pairs[i], index)]
            index += 1
        for work, output in pairs:
            work.state.num_computed_tokens += max(0, len(output.token_ids) - 1)
            work.state.num_held = len(output.token_ids) if work.drafts else 0

    def _take_plain(self, pairs: Sequence[_Pair], places: Sequence[int], scores: Scores) -> list[int]:
        """Takes the tokens of rows whose choices need nothing but the scores; returns the places of the other rows.

        Args:
            pairs: rows.
            places: where the scores of each begin.
            scores: of all.
        """
        drawn, are_finite = scores.choice.tolist()
        others: list[int] = []
        for i, (work, output) in enumerate(pairs):
            state, place, tokens = work.state, places[i], output.token_ids
            end = place + 1 + len(work.drafts)
            is_plain = not state.has_edits and state.edits is None and state.sampling.logprobs is None
            if not is_plain or NO_TOKEN in drawn[place:end] or not all(are_finite[place:end]):
                others.append(i)
                continue
            for token, draft in zip(drawn[place:end], (*work.drafts, NO_TOKEN), strict=True):
                tokens.append(token)
                if token != draft or token in state.stop_token_ids:
                    break
            state.append(tokens)
        return others

    def _choose(self, pairs: Sequence[_Pair], scores: Scores) -> None:
        """Chooses one token of each row, on all ranks."""
        if self._group.rank == 0:
            self._choose_here(pairs, scores)
        if self._group.size > 1:
            self._tell(pairs)

    def _choose_here(self, pairs: Sequence[_Pair], scores: Scores) -> None:
        states = [work.state for work, _ in pairs]
        drawn, are_finite = scores.choice.tolist()
        tokens = sample_tokens(scores.logits, states, self._limits.num_valid_token_ids, drawn)
        is_checked = self._limits.is_nan_check_enabled
        wanting: list[tuple[int, int, RowOutput]] = []
        for i, (work, output) in enumerate(pairs):
            is_finite = are_finite[i] or not is_checked
            # Scores that are not numbers leave no token either; where nobody checks them any one is as good.
            token = ANY_TOKEN if tokens[i] == NO_TOKEN and not are_finite[i] else tokens[i]
            if is_finite and token != NO_TOKEN and not output.error:
                output.token_ids.append(token)
                work.state.append([token])
                if token in work.state.stop_token_ids:
                    self._note_stop(work.state)
                num_top = work.state.sampling.logprobs
                if num_top is not None:
                    wanting.append((i, num_top, output))
                continue
            if not is_finite:
                output.error = NOT_FINITE
            elif token == NO_TOKEN:
                output.error, output.error_code = _why_nothing_is_left(work.state)
            work.state.has_ended = not output.token_ids
        if wanting:
            _report_chosen(wanting, scores.logits)

    def _note_stop(self, state: RowState) -> None:
        """After a stop token; where other ranks would not know of it, such a row goes on until the scheduler knows."""
        num_outputs = state.num_tokens - state.num_prompt_tokens
        state.has_ended = self._group.size == 1 and num_outputs >= state.sampling.min_tokens

    def _tell(self, pairs: Sequence[_Pair]) -> None:
        """Brings the tokens that rank 0 has just chosen to the other ranks' rows; NO_TOKEN where there is none."""
        chosen = [
            output.token_ids[-1] if output.token_ids and not output.error else NO_TOKEN for _, output in pairs
        ]
        tokens = self._group.broadcast(torch.tensor(chosen)).tolist()
        if self._group.rank > 0:
            for token, (work, output) in zip(tokens, pairs, strict=True):
                if token == NO_TOKEN:
                    output.error = NOT_FINITE  # or whatever rank 0 says
                    work.state.has_ended = not output.token_ids
                else:
                    work.state.append([token])
                    output.token_ids.append(token)

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
            are_finite = scores.choice[1].tolist()
            entries = token_logprobs(scores.logits, [t.token_id for t in part], [t.num_top for t in part])
            for i, target in enumerate(part):
                target.output.prompt_logprobs.append(entries[i])
                if self._limits.is_nan_check_enabled and not are_finite[i]:
                    target.output.error = NOT_FINITE

    def _score_chunks(self, places: Sequence[int], hidden: Tensor) -> Iterator[tuple[slice, Scores]]:
        """(which of the places, the scores of their rows), so many at a time as the memory plan allows."""
        step = self._limits.logits_chunk_rows
        for start in range(0, len(places), step):
            chunk = slice(start, start + step)
            yield chunk, self._scores(places[chunk], hidden)

    def _scores(self, places: Sequence[int], hidden: Tensor, draws: Draws | None = None) -> Scores:
        is_run = places[-1] - places[0] + 1 == len(places)
        rows = hidden[places[0] : places[-1] + 1] if is_run else hidden[list(places)]
        return self._passes.scores(rows, draws)


def _why_nothing_is_left(state: RowState) -> tuple[str, str]:
    """Message and code for a row without a token to choose."""
    if state.form is not None and state.form.error:
        return state.form.error, StructuredOutputError.code
    return NOTHING_LEFT, InvalidRequestError.code


def _agrees(work: RowWork, output: RowOutput, index: int) -> bool:
    """True if the token just chosen is the draft of that index, so that the scores behind it count.

    A token that may end the output ends the run at any rate: no form or penalty is asked for more.
    """
    if index >= len(work.drafts) or output.error or len(output.token_ids) <= index:
        return False
    token = output.token_ids[index]
    return token == work.drafts[index] and token not in work.state.stop_token_ids


def _parts(pairs: Sequence[_Pair], max_places: int) -> Iterator[list[_Pair]]:
    """Rows in order, so many at a time that the scores of all their places fit."""
    part: list[_Pair] = []
    num_places = 0
    for pair in pairs:
        own = 1 + len(pair[0].drafts)
        if part and num_places + own > max_places:
            yield part
            part, num_places = [], 0
        part.append(pair)
        num_places += own
    if part:
        yield part


def _report_chosen(wanting: Sequence[tuple[int, int, RowOutput]], logits: Tensor) -> None:
    """Log-probabilities of tokens just chosen: the row of their scores, how many others are wanted, where they go."""
    places = [i for i, _, _ in wanting]
    rows = logits[: len(places)] if places[-1] + 1 == len(places) else logits[places]
    entries = token_logprobs(
        rows, [output.token_ids[-1] for _, _, output in wanting], [top for _, top, _ in wanting]
    )
    for (_, _, output), entry in zip(wanting, entries, strict=True):
        output.logprobs.append(entry)


def _with_ended(batch: ScheduledBatch, outputs: Sequence[RowOutput]) -> list[RowOutput]:
    """In batch order, with nothing for rows whose requests had ended."""
    computed = {output.row: output for output in outputs}
    return [computed.get(one.row) or RowOutput(one.row, []) for one in batch.rows]


def _drop_failed(outputs: Iterable[RowOutput]) -> None:
    """A row that failed reports nothing but its error; one that failed behind a draft reports it with the next step."""
    for output in outputs:
        if output.error and output.token_ids:
            output.error = ""
        elif output.error:
            output.logprobs, output.prompt_logprobs = [], []
