"""The Qwen3.5-MoE architecture in torch, for training: parameters carry the names of the checkpoint's tensors."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import ops

Weights = dict[str, Tensor]
TRUNK = "model.language_model."


@dataclass(frozen=True)
class Shape:
    """Sizes of the demo model; heads of the delta net are 32 wide (as the fused kernel has them)."""

    vocab_size: int = 1024
    hidden_size: int = 128
    num_layers: int = 8
    full_attention_interval: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    rotary_dim: int = 16
    rope_theta: float = 10_000.0
    num_delta_heads: int = 4
    delta_head_dim: int = 32
    num_experts: int = 8
    num_experts_per_token: int = 2
    expert_size: int = 64
    shared_size: int = 64

    def is_full_attention(self, layer: int) -> bool:
        """Whether `layer` is gated attention; the others are gated delta nets."""
        return (layer + 1) % self.full_attention_interval == 0


def _attention_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, head = shape.hidden_size, shape.head_dim
    return {
        "self_attn.q_proj.weight": (2 * shape.num_heads * head, hidden),
        "self_attn.k_proj.weight": (shape.num_kv_heads * head, hidden),
        "self_attn.v_proj.weight": (shape.num_kv_heads * head, hidden),
        "self_attn.o_proj.weight": (hidden, shape.num_heads * head),
        "self_attn.q_norm.weight": (head,),
        "self_attn.k_norm.weight": (head,),
    }


def _delta_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, heads = shape.hidden_size, shape.num_delta_heads
    width = heads * shape.delta_head_dim
    return {
        "linear_attn.in_proj_qkv.weight": (3 * width, hidden),
        "linear_attn.in_proj_z.weight": (width, hidden),
        "linear_attn.in_proj_b.weight": (heads, hidden),
        "linear_attn.in_proj_a.weight": (heads, hidden),
        "linear_attn.conv1d.weight": (3 * width, 1, 4),
        "linear_attn.A_log": (heads,),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.norm.weight": (shape.delta_head_dim,),
        "linear_attn.out_proj.weight": (hidden, width),
    }


def _moe_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, experts, inner, shared = (
        shape.hidden_size,
        shape.num_experts,
        shape.expert_size,
        shape.shared_size,
    )
    return {
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate.weight": (experts, hidden),
        "mlp.experts.gate_up_proj": (experts, 2 * inner, hidden),
        "mlp.experts.down_proj": (experts, hidden, inner),
        "mlp.shared_expert.gate_proj.weight": (shared, hidden),
        "mlp.shared_expert.up_proj.weight": (shared, hidden),
        "mlp.shared_expert.down_proj.weight": (hidden, shared),
        "mlp.shared_expert_gate.weight": (1, hidden),
    }


def parameter_shapes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint and its shape."""
    hidden = shape.hidden_size
    table = {TRUNK + "embed_tokens.weight": (shape.vocab_size, hidden)}
    for layer in range(shape.num_layers):
        mixer = _attention_shapes(shape) if shape.is_full_attention(layer) else _delta_shapes(shape)
        for name, size in {**mixer, **_moe_shapes(shape)}.items():
            table[f"{TRUNK}layers.{layer}.{name}"] = size
    table[TRUNK + "norm.weight"] = (hidden,)
    table["lm_head.weight"] = (shape.vocab_size, hidden)
    table["mtp.fc.weight"] = (hidden, 2 * hidden)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        table[f"mtp.{name}.weight"] = (hidden,)
    for name, size in {**_attention_shapes(shape), **_moe_shapes(shape)}.items():
        table[f"mtp.layers.0.{name}"] = size
    return table


def initial_weights(shape: Shape, seed: int) -> Weights:
    """Random fp32 weights, the same for the same seed; norms are neutral, decays spread from slow to fast."""
    generator = torch.Generator().manual_seed(seed)
    branch = 1 / math.sqrt(2 * shape.num_layers)
    weights: Weights = {}
    for name, size in parameter_shapes(shape).items():
        value = torch.zeros(size)
        if name.endswith("A_log"):
            value.uniform_(1, 16, generator=generator).log_()
        elif name.endswith("dt_bias"):
            step = torch.empty(size).uniform_(math.log(1e-3), math.log(1e-1), generator=generator).exp()
            value = step.expm1().log()
        elif name.endswith("linear_attn.norm.weight"):
            value.fill_(1)
        elif name.endswith("conv1d.weight"):
            value.uniform_(-0.5, 0.5, generator=generator)
        elif name.endswith("embed_tokens.weight"):
            value.normal_(0, 0.5, generator=generator)
        elif name.endswith(("lm_head.weight", "mlp.gate.weight")):
            value.normal_(0, 0.02, generator=generator)
        elif "norm" not in name:
            scale = (
                branch
                if name.endswith(("down_proj", "down_proj.weight", "o_proj.weight", "out_proj.weight"))
                else 1
            )
            value.normal_(0, scale * size[-1] ** -0.5, generator=generator)
        weights[name] = value.requires_grad_()
    return weights


class DemoModel:
    """Forward pass over whole right-padded sequences, for training and teacher-forced scoring."""

    def __init__(self, shape: Shape, weights: Weights) -> None:
        self.shape = shape
        self.weights = weights
        powers = torch.arange(0, shape.rotary_dim, 2) / shape.rotary_dim
        angles = torch.arange(4096)[:, None] * shape.rope_theta**-powers
        self._cos = torch.cat((angles, angles), -1).cos()
        self._sin = torch.cat((angles, angles), -1).sin()

    def hidden_states(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids [B, T] -> (states after the final norm [B, T, H], load-balancing loss averaged over layers)."""
        w, shape = self.weights, self.shape
        x = F.embedding(ids, w[TRUNK + "embed_tokens.weight"])
        normed = ops.rms_norm(x, w[TRUNK + "layers.0.input_layernorm.weight"])
        balance = x.new_zeros(())
        for layer in range(shape.num_layers):
            prefix = f"{TRUNK}layers.{layer}."
            mixer = self._attention if shape.is_full_attention(layer) else self._delta_net
            x, normed = ops.add_norm(x, mixer(prefix, normed), w[prefix + "post_attention_layernorm.weight"])
            routed, loss = self._moe(prefix, normed)
            is_last = layer + 1 == shape.num_layers
            following = "norm.weight" if is_last else f"layers.{layer + 1}.input_layernorm.weight"
            x, normed = ops.add_norm(x, routed, w[TRUNK + following])
            balance = balance + loss / shape.num_layers
        return normed, balance

    def draft_states(self, ids: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """The MTP layer: row t sees hidden[t] and token t+1 and is to predict token t+2; [B, T-1, H]."""
        [(states, balance)] = self.draft_passes(ids, hidden, 1)
        return states, balance

    def draft_passes(self, ids: Tensor, hidden: Tensor, num_passes: int) -> list[tuple[Tensor, Tensor]]:
        """The MTP layer on its own output, as when several tokens are drafted, from every place at once.

        Row t of pass j sees row t of the pass before (of the first: hidden[t]) and token t+1+j, which stands for the
        draft, and is to predict token t+2+j. Its keys are those of the first pass up to row t and of later passes'
        row t.

        Returns:
            For each pass (states [B, T-1-j, H], load-balancing loss).
        """
        w, prefix = self.weights, "mtp.layers.0."
        earlier: list[tuple[Tensor, Tensor]] = []
        found: list[tuple[Tensor, Tensor]] = []
        states = hidden
        for index in range(num_passes):
            embedded = F.embedding(ids[:, 1 + index :], w[TRUNK + "embed_tokens.weight"])
            e = ops.rms_norm(embedded, w["mtp.pre_fc_norm_embedding.weight"])
            h = ops.rms_norm(states[:, :-1], w["mtp.pre_fc_norm_hidden.weight"])
            x = F.linear(torch.cat((e, h), -1), w["mtp.fc.weight"])
            normed = ops.rms_norm(x, w[prefix + "input_layernorm.weight"])
            mixed = self._draft_attention(prefix, normed, earlier)
            x, normed = ops.add_norm(x, mixed, w[prefix + "post_attention_layernorm.weight"])
            routed, balance = self._moe(prefix, normed)
            states = ops.add_norm(x, routed, w["mtp.norm.weight"])[1]
            found.append((states, balance))
        return found

    def logits(self, states: Tensor) -> Tensor:
        """States [..., H] -> [..., vocabulary]."""
        return F.linear(states, self.weights["lm_head.weight"])

    def _delta_net(self, prefix: str, x: Tensor) -> Tensor:
        w, p, heads = self.weights, prefix + "linear_attn.", self.shape.num_delta_heads
        pair = F.linear(x, torch.cat((w[p + "in_proj_b.weight"], w[p + "in_proj_a.weight"])))
        mixed, z = F.linear(x, w[p + "in_proj_qkv.weight"]), F.linear(x, w[p + "in_proj_z.weight"])
        out = ops.delta_net(
            mixed, w[p + "conv1d.weight"], z, pair[..., :heads], pair[..., heads:],
            w[p + "A_log"], w[p + "dt_bias"], w[p + "norm.weight"],
        )  # fmt: skip
        return F.linear(out, w[p + "out_proj.weight"])

    def _attention(self, prefix: str, x: Tensor) -> Tensor:
        query, key, value, gate = self._attention_inputs(prefix, x, 0)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self._attention_output(prefix, out, gate)

    def _draft_attention(self, prefix: str, x: Tensor, earlier: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Attention of one of the MTP layer's passes; `earlier` are keys and values of those before, and takes its own."""
        query, key, value, gate = self._attention_inputs(prefix, x, len(earlier))
        earlier.append((key, value))
        if len(earlier) == 1:
            out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            return self._attention_output(prefix, out, gate)
        time = x.shape[1]
        first_key, first_value = earlier[0]
        is_ahead = torch.ones(time, first_key.shape[2], dtype=torch.bool).triu(1)
        scores = [(query @ first_key.transpose(2, 3)).masked_fill(is_ahead, -math.inf)]
        scores += [(query * own[:, :, :time]).sum(-1, keepdim=True) for own, _ in earlier[1:]]
        shares = (torch.cat(scores, -1) * self.shape.head_dim**-0.5).softmax(-1)
        num_first = first_key.shape[2]
        out = shares[..., :num_first] @ first_value
        for index, (_, own) in enumerate(earlier[1:], num_first):
            out = out + shares[..., index : index + 1] * own[:, :, :time]
        return self._attention_output(prefix, out, gate)

    def _attention_inputs(
        self, prefix: str, x: Tensor, first_position: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, key, value [B, heads, T, head_dim] and gate [B, T, heads, head_dim] of rows from a position on."""
        w, p, shape = self.weights, prefix + "self_attn.", self.shape
        batch, time, _ = x.shape
        both = F.linear(x, w[p + "q_proj.weight"]).view(batch, time, shape.num_heads, 2 * shape.head_dim)
        query, gate = both.chunk(2, -1)
        key = F.linear(x, w[p + "k_proj.weight"]).view(batch, time, shape.num_kv_heads, shape.head_dim)
        value = F.linear(x, w[p + "v_proj.weight"]).view(batch, time, shape.num_kv_heads, shape.head_dim)
        query = self._rotate(ops.rms_norm(query, w[p + "q_norm.weight"]), first_position)
        key = self._rotate(ops.rms_norm(key, w[p + "k_norm.weight"]), first_position)
        groups = shape.num_heads // shape.num_kv_heads
        key, value = key.repeat_interleave(groups, 2), value.repeat_interleave(groups, 2)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), gate

    def _attention_output(self, prefix: str, out: Tensor, gate: Tensor) -> Tensor:
        gated = out.transpose(1, 2) * gate.sigmoid()
        return F.linear(gated.flatten(2), self.weights[prefix + "self_attn.o_proj.weight"])

    def _rotate(self, x: Tensor, first_position: int) -> Tensor:
        """Rotate the first `rotary_dim` of each head [B, T, heads, head_dim] by position."""
        turning, rest = x[..., : self.shape.rotary_dim], x[..., self.shape.rotary_dim :]
        own = slice(first_position, first_position + x.shape[1])
        cos, sin = (table[own, None] for table in (self._cos, self._sin))
        left, right = turning.chunk(2, -1)
        return torch.cat((turning * cos + torch.cat((-right, left), -1) * sin, rest), -1)

    def _moe(self, prefix: str, x: Tensor) -> tuple[Tensor, Tensor]:
        w, p, shape = self.weights, prefix + "mlp.", self.shape
        rows = x.reshape(-1, shape.hidden_size)
        probabilities = F.linear(rows, w[p + "gate.weight"]).softmax(-1)
        share, chosen = probabilities.topk(shape.num_experts_per_token, -1)
        share = share / share.sum(-1, keepdim=True)
        routed = ops.experts(rows, chosen, share, w[p + "experts.gate_up_proj"], w[p + "experts.down_proj"])
        s = p + "shared_expert."
        both = F.linear(rows, torch.cat((w[s + "gate_proj.weight"], w[s + "up_proj.weight"])))
        shared = F.linear(ops.swiglu(both), w[s + "down_proj.weight"])
        out = routed + F.linear(rows, w[p + "shared_expert_gate.weight"]).sigmoid() * shared
        load = torch.bincount(chosen.flatten(), minlength=shape.num_experts) / rows.shape[0]
        balance = (load * probabilities.mean(0)).sum() * shape.num_experts / shape.num_experts_per_token
        return out.view(x.shape), balance
