"""The skeleton that all families share: embedding, layers of (mixer, feed-forward), final norm, head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from qanat.config.model_config import ModelConfig
from qanat.kernels import ops
from qanat.kernels.packing import is_packed
from qanat.kernels.rows import RowFormat, Rows
from qanat.layers.context import ForwardContext
from qanat.layers.gated_delta_net import GatedDeltaNet
from qanat.layers.linear import Embedding, LogitsHead, ReplicatedLinear
from qanat.layers.norm import RMSNorm
from qanat.layers.rotary import RotaryEmbedding
from qanat.models.weights import WeightMap, without_drop
from qanat.quant.parameter import ParameterFactory

MTP = "mtp"
"""Name of the rule that leaves draft layers out."""


class Part(Protocol):
    """A mixer or a feed-forward part, as the layer sees it."""

    @property
    def row_format(self) -> RowFormat | None:
        """What its input is quantised as, if it is."""

    def __call__(self, x: Rows, context: ForwardContext) -> Tensor:
        """[T, C] -> [T, C]."""


class DecoderLayer(nn.Module):
    """One layer of a family: two norms around a mixer and a feed-forward part.

    Subclasses register, under the names of their checkpoint, the parts that `mixer` and `mlp` point to.

    Attributes:
        input_layernorm, post_attention_layernorm: the norms.
        mlp: the feed-forward part.
        mixer_name: attribute that holds the mixer ("self_attn" or "linear_attn").
    """

    def __init__(
        self, mixer_name: str, mixer: nn.Module, mlp: nn.Module, norms: tuple[RMSNorm, RMSNorm]
    ) -> None:
        """Registers the parts."""
        super().__init__()
        self.mixer_name = mixer_name
        self.add_module(mixer_name, mixer)
        self.mlp = mlp
        self.input_layernorm, self.post_attention_layernorm = norms

    def forward(self, x: Tensor, residual: Tensor | None, context: ForwardContext) -> tuple[Tensor, Tensor]:
        """Both (feed-forward output, residual stream before it); the next norm adds the two."""
        return self.through(*self.enter(x, residual), context)

    def enter(self, x: Tensor, residual: Tensor | None) -> tuple[Rows, Tensor]:
        """Both (normed rows, residual stream that enters the layer)."""
        form = cast(Part, self.get_submodule(self.mixer_name)).row_format
        if residual is None:
            return self.input_layernorm.shared(x, form), x
        return self.input_layernorm.add_shared(x, residual, form)

    def through(self, rows: Rows, residual: Tensor, context: ForwardContext) -> tuple[Tensor, Tensor]:
        """What `forward` makes of what `enter` returned."""
        mixer, mlp = cast(Part, self.get_submodule(self.mixer_name)), cast(Part, self.mlp)
        mixed = mixer(rows, context)
        rows, residual = self.post_attention_layernorm.add_shared(mixed, residual, mlp.row_format)
        return mlp(rows, context), residual


class Family(Protocol):
    """What a model file provides: its layers, its norms' flavour, and its checkpoint's naming rules."""

    zero_centred_norms: bool
    weight_map: WeightMap

    def layer(self, config: ModelConfig, index: int, factory: ParameterFactory) -> DecoderLayer:
        """Builds decoder layer `index`."""

    def draft_layer(self, config: ModelConfig, factory: ParameterFactory) -> DecoderLayer:
        """Builds the layer behind `mtp`, whose cache is the first of its context.

        Raises:
            CheckpointError: the family has none.
        """


def weight_map_of(family: Family, config: ModelConfig) -> WeightMap:
    """The family's naming rules; draft layers are no longer left out where they are loaded."""
    return without_drop(family.weight_map, MTP) if config.num_draft_layers else family.weight_map


class Decoder(nn.Module):
    """Token ids to normed hidden rows."""

    def __init__(self, config: ModelConfig, family: Family, factory: ParameterFactory) -> None:
        """Builds embedding, layers and final norm."""
        super().__init__()
        self.embed_tokens = Embedding(
            config.vocab_size, config.hidden_size, factory, is_head=config.tie_word_embeddings
        )
        self.layers = nn.ModuleList(family.layer(config, i, factory) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, family.zero_centred_norms, factory)
        self._tapped = config.tapped_layers

    def forward(self, token_ids: Tensor, context: ForwardContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """[T] -> [T, C], and the residual streams [T, C] that enter the tapped layers."""
        x, residual = self.embed_tokens(token_ids), None
        entering: list[Tensor] = []
        for layer in self.layers:
            rows, residual = layer.enter(x, residual)
            if self._tapped:
                entering.append(residual)
            x, residual = layer.through(rows, residual, context)
        normed, last = self.norm.add(x, residual)
        entering.append(last)
        return normed, tuple(entering[index] for index in self._tapped)


class MtpDecoder(nn.Module):
    """Multi-token prediction: from a token and the hidden row before it to the row from which the next is guessed.

    The row of token t + 1 and of the hidden row of position t predicts token t + 2, with the head of the model. Further
    tokens are guessed from its own output in place of the model's.
    """

    def __init__(self, config: ModelConfig, family: Family, factory: ParameterFactory) -> None:
        """Registers the parts under the names of checkpoints."""
        super().__init__()
        width, eps, is_centred = config.hidden_size, config.rms_norm_eps, family.zero_centred_norms
        self.pre_fc_norm_embedding = RMSNorm(width, eps, is_centred, factory)
        self.pre_fc_norm_hidden = RMSNorm(width, eps, is_centred, factory)
        self.fc = ReplicatedLinear(2 * width, width, factory)
        self.layers = nn.ModuleList([family.draft_layer(config, factory)])
        self.norm = RMSNorm(width, eps, is_centred, factory)

    def forward(self, embedded: Tensor, hidden: Tensor, context: ForwardContext) -> Tensor:
        """Embedded tokens and hidden rows, both [T, C] -> [T, C] behind the final norm."""
        pair = ops.join_rows((self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden)))
        x, residual = self.fc(pair, context), None
        for layer in self.layers:
            x, residual = layer(x, residual, context)
        return self.norm.add(x, residual)[0]


class LoadedModel(nn.Module):
    """What a checkpoint fills.

    Attributes:
        config: its shape.
        weight_map: how checkpoint tensors become its parameters.
    """

    config: ModelConfig
    weight_map: WeightMap


class CausalLM(LoadedModel):
    """A language model. Built by `qanat.models.registry.build_model`.

    Attributes:
        rotary: maker of cos and sin rows.
        mtp: drafts tokens; None where no draft layer is loaded.
    """

    def __init__(self, config: ModelConfig, family: Family, factory: ParameterFactory) -> None:
        """Builds the decoder, and the head unless embeddings are tied."""
        super().__init__()
        self.config = config
        self.weight_map = weight_map_of(family, config)
        self.rotary = RotaryEmbedding(config.rope, factory.dtype)
        self.model = Decoder(config, family, factory)
        self.lm_head: LogitsHead | None = None
        if not config.tie_word_embeddings:
            self.lm_head = LogitsHead(config.hidden_size, config.vocab_size, factory)
        self.mtp: MtpDecoder | None = None
        if config.num_draft_layers:
            self.mtp = MtpDecoder(config, family, factory)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, context: ForwardContext) -> Tensor:
        """Runs all layers and the final norm: token_ids [T] int64 -> hidden rows [T, C]."""
        return self.forward_tapped(token_ids, context)[0]

    @torch.inference_mode()
    def forward_tapped(self, token_ids: Tensor, context: ForwardContext) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same, and the rows [T, C] that enter each of `ModelConfig.tapped_layers`."""
        found: tuple[Tensor, tuple[Tensor, ...]] = self.model(token_ids, context)
        return found

    @torch.inference_mode()
    def draft(self, token_ids: Tensor, hidden: Tensor, context: ForwardContext) -> Tensor:
        """Runs the draft layer: token_ids [T] int64 and the hidden rows before them [T, C] -> [T, C]."""
        assert self.mtp is not None, "a draft layer is loaded where drafts are asked for"
        drafted: Tensor = self.mtp(self.model.embed_tokens(token_ids), hidden, context)
        return drafted

    @property
    def draft_rows(self) -> tuple[int, torch.dtype]:
        """Width and type of the rows that drafts are made from."""
        return self.config.hidden_size, self.rotary.dtype

    def draft_inputs(self, hidden: Tensor, taps: Sequence[Tensor]) -> Tensor:
        """What the draft layer reads of a pass: the hidden rows themselves."""
        return hidden

    def draft_logits(self, rows: Tensor) -> Tensor:
        """Scores of what `draft` returned, [N, C] -> [N, V] fp32, with the model's own head."""
        return self.compute_logits(rows)

    @torch.inference_mode()
    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Scores of hidden rows [N, C] -> [N, V] fp32."""
        head = self.model.embed_tokens if self.lm_head is None else self.lm_head
        return head.logits(hidden)

    @torch.inference_mode()
    def rotary_rows(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (cos, sin) [T, rotary_dim / 2] of positions [A, T] int64; made once per step."""
        return self.rotary.rows(positions)

    @torch.inference_mode()
    def absorb_held(self, context: ForwardContext) -> None:
        """Brings running states to where the accepted ones of their held rows have passed; computes nothing else.

        Args:
            context: of requests without rows; only what linear-attention layers read counts.
        """
        for layer in self.model.layers:
            mixer = layer.get_submodule(layer.mixer_name)
            if isinstance(mixer, GatedDeltaNet):
                mixer.absorb(context)

    def size_bytes(self) -> int:
        """What the weights take: parameters, and what has been packed of them."""
        packed = (value for module in self.modules() for value in vars(module).values() if is_packed(value))
        return sum(parameter.nbytes for parameter in self.parameters()) + sum(each.nbytes for each in packed)
