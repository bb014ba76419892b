"""EAGLE-3 (Li et al. 2025): a draft model of one layer that reads rows of three layers of its target.

With t the tapped rows of position i and e the embedded token i + 1, the row behind the pair is

    f = fc [t_low, t_mid, t_high]             once for each row of the target
    n = hidden_norm(f),  a = attention [input_layernorm(e), n]
    x = r + a,  r = n if norm_before_residual else f
    x = x + mlp(post_attention_layernorm(x))

`lm_head(norm(x))` scores token i + 2; the next guess has x in place of f (or norm(x), see `Eagle3Config`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qanat.config.eagle3 import NUM_TAPS, Eagle3Config
from qanat.core.errors import CheckpointError
from qanat.kernels import ops
from qanat.kernels.recording import host_call
from qanat.layers.attention import FullAttention
from qanat.layers.context import ForwardContext
from qanat.layers.linear import Embedding, LogitsHead, ReplicatedLinear
from qanat.layers.mlp import DenseMLP
from qanat.layers.norm import RMSNorm
from qanat.layers.rotary import RotaryEmbedding
from qanat.models.decoder import CausalLM, LoadedModel
from qanat.models.weights import DropRule, WeightMap
from qanat.quant.parameter import ParameterFactory, ParameterInfo

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
NEVER = -1e30
"""Score of a token that a reduced vocabulary does not have: finite at any temperature, and below all others."""

_LAYER = "layers.0."
_OWN_PARTS = ("fc.", "norm.", "input_norm.", "lm_head.", "embed_tokens.", "d2t")
_MASK = DropRule("mask", r"^t2d$", "tells only in training which tokens can be guessed")
_NO_OFFSETS = DropRule("offsets", r"^d2t$", "all tokens can be guessed")


class Eagle3Layer(nn.Module):
    """The layer, under the names of checkpoints."""

    def __init__(self, config: Eagle3Config, factory: ParameterFactory) -> None:
        """Registers the parts."""
        super().__init__()
        layer = config.layer
        width, eps = layer.hidden_size, layer.rms_norm_eps
        flavour = False if config.has_head_norms else None
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = RMSNorm(width, eps, False, factory)
        self.hidden_norm = RMSNorm(width, eps, False, factory)
        self.post_attention_layernorm = RMSNorm(width, eps, False, factory)
        self.self_attn = FullAttention(layer, 0, flavour, factory, num_inputs=2 * width)
        self.mlp = DenseMLP(width, layer.intermediate_size, factory)

    def forward(self, embedded: Tensor, hidden: Tensor, context: ForwardContext) -> tuple[Tensor, Tensor]:
        """Both [T, D] -> both (feed-forward output, residual stream before it)."""
        normed = self.hidden_norm(hidden)
        attended = self.self_attn(ops.join_rows((self.input_layernorm(embedded), normed)), context)
        residual = normed if self.norm_before_residual else hidden
        rows, residual = self.post_attention_layernorm.add_shared(attended, residual, self.mlp.row_format)
        return self.mlp(rows, context), residual


class Eagle3Model(LoadedModel):
    """The draft model. Embedding and head may be those of its target.

    Args:
        eagle3: its shape.
        factory: makes its parameters.
        has_embedding, has_head: the checkpoint brings its own.
    """

    def __init__(
        self, eagle3: Eagle3Config, factory: ParameterFactory, *, has_embedding: bool, has_head: bool
    ) -> None:
        """Registers the parts under the names of checkpoints."""
        super().__init__()
        layer = self.config = eagle3.layer
        self.eagle3, self.weight_map = eagle3, weight_map(eagle3)
        self.rotary = RotaryEmbedding(layer.rope, factory.dtype)
        width, eps, joined = layer.hidden_size, layer.rms_norm_eps, NUM_TAPS * eagle3.target_hidden_size
        self.input_norm = RMSNorm(joined, eps, False, factory) if eagle3.norm_before_fc else None
        self.fc = ReplicatedLinear(joined, width, factory)
        self.layers = nn.ModuleList([Eagle3Layer(eagle3, factory)])
        self.norm = RMSNorm(width, eps, False, factory)
        self.embed_tokens = Embedding(layer.vocab_size, width, factory) if has_embedding else None
        self.lm_head = LogitsHead(width, eagle3.draft_vocab_size, factory) if has_head else None
        self.d2t: nn.Parameter | None = None
        if eagle3.is_reduced:
            self.d2t = factory.make((eagle3.draft_vocab_size,), ParameterInfo(), torch.int64)
        self._target: tuple[CausalLM, ...] = ()
        self._token_ids: Tensor | None = None

    def draft_for(self, target: CausalLM) -> None:
        """Takes from the target what the checkpoint does not bring, once all values are in.

        Raises:
            CheckpointError: a reduced vocabulary has a token that is none, or one twice.
        """
        self._target = (target,)  # not a part of this module, as an attribute of its own would be
        if self.d2t is not None:
            self._token_ids = torch.arange(len(self.d2t)) + self.d2t.data
            self._check_token_ids(self._token_ids)

    def _check_token_ids(self, token_ids: Tensor) -> None:
        where = f"tensor 'd2t' in {self.eagle3.folder}"
        if int(token_ids.min()) < 0 or int(token_ids.max()) >= self.config.vocab_size:
            raise CheckpointError(f"{where} leads beyond the vocabulary of {self.config.vocab_size}")
        if len(token_ids.unique()) < len(token_ids):
            raise CheckpointError(
                f"{where} leads to one token from two entries; entry j stands for token j + d2t[j]"
            )

    @property
    def draft_rows(self) -> tuple[int, torch.dtype]:
        """See `qanat.worker.drafters.base.DraftModel`."""
        return self.config.hidden_size, self.rotary.dtype

    @torch.inference_mode()
    def draft_inputs(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        """The three tapped rows in one, [T, D]."""
        joined = ops.join_rows(taps)
        if self.input_norm is not None:
            joined = self.input_norm(joined)
        return self.fc.method.apply(self.fc, joined, None)

    @torch.inference_mode()
    def rotary_rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (cos, sin) of positions [A, T] int64."""
        return self.rotary.rows(positions)

    @torch.inference_mode()
    def draft(self, token_ids: Tensor, hidden: Tensor, context: ForwardContext) -> Tensor:
        """Tokens [T] and the rows before them [T, D] -> rows [T, D]."""
        table = self._target[0].model.embed_tokens if self.embed_tokens is None else self.embed_tokens
        out, residual = self.layers[0](table(token_ids), hidden, context)
        normed, row = self.norm.add(out, residual)
        return normed if self.eagle3.norm_output else row

    @torch.inference_mode()
    def draft_logits(self, rows: Tensor) -> Tensor:
        """Scores of the target's vocabulary for rows of `draft`: [N, D] -> [N, V] fp32."""
        normed = rows if self.eagle3.norm_output else self.norm(rows)
        if self.lm_head is None:
            return self._target[0].compute_logits(normed)
        scores = self.lm_head.logits(normed)
        if self._token_ids is None:
            return scores
        return host_call(spread_scores, scores, self._token_ids, self.config.vocab_size)


def spread_scores(scores: Tensor, token_ids: Tensor, vocab_size: int) -> Tensor:
    """Scores [N, draft vocabulary] at the places [draft vocabulary] of their tokens, [N, V].

    So a token has the noise of its own id, as where the model draws it.
    """
    spread = torch.full((scores.shape[0], vocab_size), NEVER)
    return spread.index_copy_(1, token_ids, scores)


def weight_map(config: Eagle3Config) -> WeightMap:
    """How tensors of both layouts are named."""
    own = tuple((name, name) for name in _OWN_PARTS)
    prefixes = (("midlayer.", _LAYER), (_LAYER, _LAYER), *own)
    drops = (_MASK,) if config.is_reduced else (_MASK, _NO_OFFSETS)
    return WeightMap(prefixes=prefixes, drops=drops, expert_stack=None)
