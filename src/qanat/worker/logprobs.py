"""Log-probabilities of chosen tokens and their alternatives, from unmodified logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from qanat.core.batch import TokenLogprobs
from qanat.kernels.reference.candidates import order_best
from qanat.worker.workspace import MAX_SAMPLER_ELEMENTS


@torch.inference_mode()
def token_logprobs(logits: Tensor, token_ids: Sequence[int], num_top: Sequence[int]) -> list[TokenLogprobs]:
    """fp32 log-softmax at each row's token and at its most likely tokens.

    Ranks and alternatives are ordered by (logit descending, id ascending).

    Args:
        logits: [N, V] fp32.
        token_ids: N tokens.
        num_top: N numbers of alternatives, each may be 0.
    """
    num_rows = max(1, MAX_SAMPLER_ELEMENTS // logits.shape[1])
    return [
        entry
        for start in range(0, len(logits), num_rows)
        for entry in _part_logprobs(
            logits[start : start + num_rows],
            token_ids[start : start + num_rows],
            num_top[start : start + num_rows],
        )
    ]


def _part_logprobs(logits: Tensor, token_ids: Sequence[int], num_top: Sequence[int]) -> list[TokenLogprobs]:
    logprobs = torch.log_softmax(logits, dim=1)
    chosen = torch.tensor(token_ids, dtype=torch.int64, device=logits.device)[:, None]
    chosen_logits = logits.gather(1, chosen)
    is_before = torch.arange(logits.shape[1], device=logits.device) < chosen
    is_tied_before = (logits == chosen_logits).logical_and_(is_before)
    ranks = (logits > chosen_logits).logical_or_(is_tied_before).sum(dim=1) + 1
    width = min(max(num_top), logits.shape[1])
    top_ids = order_best(logits, width)[1] if width else chosen[:, :0]
    columns = zip(
        token_ids,
        logprobs.gather(1, chosen)[:, 0].tolist(),
        ranks.tolist(),
        top_ids.tolist(),
        logprobs.gather(1, top_ids).tolist(),
        num_top,
        strict=True,
    )
    return [
        TokenLogprobs([token_id, *ids[:count]], [logprob, *values[:count]], rank)
        for token_id, logprob, rank, ids, values, count in columns
    ]
