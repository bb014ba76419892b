"""Numbers of parameters of a model, by what they belong to."""

from __future__ import annotations

import math
from dataclasses import dataclass

from qanat.deploy.knowledge.kinds.models import ModelFacts

EAGLE3_VOCABULARY = 32000
EAGLE3_MLP_FACTOR = 6
"""Intermediate over hidden size of published Eagle 3 drafts of models with experts; dense ones copy the model's."""
EAGLE3_FEATURES = 3
"""Hidden states of the model that a draft reads at once."""
PATCH_ELEMENTS = 3 * 2 * 16 * 16
"""Of one input of the vision tower: colours, frames, height and width of a patch."""
VISION_POSITIONS = 2304
MERGED_PATCHES = 4


@dataclass(frozen=True)
class Parameters:
    """Parameters of the language model, norms and biases left out (below 0.01 %).

    Attributes:
        routed_experts: of all layers.
        shared_experts: of all layers.
        router: gates of the routed and the shared expert.
        dense_mlp: of models without experts.
        linear_attention: projections and convolution of the layers with recurrent state.
        attention: projections of the layers with keys and values.
        embeddings: table and head, once if they are tied.
        mtp: the layer that drafts, embeddings not counted: it uses the model's.
    """

    routed_experts: int
    shared_experts: int
    router: int
    dense_mlp: int
    linear_attention: int
    attention: int
    embeddings: int
    mtp: int


def parameters_of(model: ModelFacts) -> Parameters:
    """Counts from the sizes of the model; see `Parameters`."""
    layers = model.num_layers
    experts = routed_experts(model)
    mtp = attention(model, 1) + experts + shared_expert(model) + router(model) + dense_mlp(model)
    mtp += 2 * model.hidden_size**2
    return Parameters(
        routed_experts=layers * experts,
        shared_experts=layers * shared_expert(model),
        router=layers * router(model),
        dense_mlp=layers * dense_mlp(model),
        linear_attention=model.num_linear_layers * linear_attention(model, 1),
        attention=model.num_attention_layers * attention(model, 1),
        embeddings=embeddings(model, 1),
        mtp=model.num_mtp_layers * mtp,
    )


def one_expert(model: ModelFacts) -> int:
    """Gate, up and down projection of one routed expert of one layer."""
    return 3 * model.hidden_size * model.expert_intermediate_size


def routed_experts(model: ModelFacts) -> int:
    """All routed experts of one layer."""
    return model.num_experts * one_expert(model)


def shared_expert(model: ModelFacts) -> int:
    """The shared expert of one layer."""
    return 3 * model.hidden_size * model.shared_intermediate_size


def router(model: ModelFacts) -> int:
    """One layer's gate, with a row per routed expert and one for the shared expert."""
    return model.hidden_size * (model.num_experts + int(model.has_shared_expert))


def dense_mlp(model: ModelFacts) -> int:
    """One layer's feed forward of a model without experts."""
    return 3 * model.hidden_size * model.intermediate_size


def attention(model: ModelFacts, tp: int) -> int:
    """One attention layer's share of a rank: heads of keys and values are copied where there are fewer than ranks."""
    query_heads = math.ceil(model.num_query_heads / tp)
    num_query_sized = 3 if model.is_hybrid else 2
    per_head = model.hidden_size * model.head_dim
    return per_head * (num_query_sized * query_heads + 2 * math.ceil(model.num_kv_heads / tp))


def linear_attention(model: ModelFacts, tp: int) -> int:
    """One recurrent layer's share of a rank: projections in and out, gates of state and input, convolution."""
    key_size, value_size = linear_sizes(model, tp)
    gates = 2 * value_size // model.linear_head_dim if model.linear_head_dim else 0
    projections = model.hidden_size * (2 * key_size + 3 * value_size + gates)
    return projections + (2 * key_size + value_size) * model.linear_conv_kernel


def linear_sizes(model: ModelFacts, tp: int) -> tuple[int, int]:
    """Width of keys (as of queries) and of values of a recurrent layer on one rank."""
    key_size = math.ceil(model.num_linear_key_heads / tp) * model.linear_head_dim
    return key_size, math.ceil(model.num_linear_value_heads / tp) * model.linear_head_dim


def embeddings(model: ModelFacts, tp: int) -> int:
    """A rank's rows of table and head."""
    return math.ceil(model.vocab_size / tp) * model.hidden_size * (1 if model.has_tied_embeddings else 2)


def eagle3_draft(model: ModelFacts, tp: int) -> int:
    """A rank's share of an Eagle 3 draft: one layer on twice the width, a fusing projection, a small head."""
    hidden = model.hidden_size
    heads = 2 * math.ceil(model.num_query_heads / tp) + 4 * math.ceil(model.num_kv_heads / tp)
    heads += math.ceil(model.num_query_heads / tp)
    intermediate = model.intermediate_size or EAGLE3_MLP_FACTOR * hidden
    cut = EAGLE3_FEATURES * hidden * hidden + 3 * hidden * intermediate + EAGLE3_VOCABULARY * hidden
    return heads * model.head_dim * hidden + math.ceil(cut / tp)


def vision_tower(model: ModelFacts, tp: int) -> int:
    """A rank's share of the tower: blocks and merger are cut, patch and position tables copied."""
    width, merged = model.vision_hidden_size, MERGED_PATCHES * model.vision_hidden_size
    block = 4 * width * width + 2 * width * model.vision_intermediate_size
    cut = model.vision_layers * block + merged * (merged + model.hidden_size)
    return math.ceil(cut / tp) + (PATCH_ELEMENTS + VISION_POSITIONS) * width
