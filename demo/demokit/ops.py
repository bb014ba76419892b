"""Differentiable pieces of the model: fused C++ where a compiler is there, plain torch otherwise (same formulas)."""

import os
import shutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@cache
def fused() -> ModuleType | None:
    """The compiled module, built on first use, or None without a C++ compiler."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        return None
    from torch.utils.cpp_extension import load

    sources = [os.fspath(Path(__file__).with_name(name)) for name in ("fused_delta.cpp", "fused_blocks.cpp")]
    folder = Path(__file__).resolve().parents[1] / "build" / "fused"
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp-simd"]
    return load("demo_fused", sources, extra_cflags=flags, build_directory=os.fspath(folder))


class _Delta(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        tensors = tuple(t.contiguous() for t in tensors)
        ctx.save_for_backward(*tensors)
        return fused().delta_forward(list(tensors))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return tuple(fused().delta_backward(list(ctx.saved_tensors), grad.contiguous()))


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total, normed = fused().add_norm_forward(x.contiguous(), y.contiguous(), weight)
        ctx.save_for_backward(total, weight)
        return total, normed

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor, grad_normed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        total, weight = ctx.saved_tensors
        grad, grad_weight = fused().add_norm_backward(
            total, weight, grad_total.contiguous(), grad_normed.contiguous()
        )
        return grad, grad, grad_weight


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        return fused().swiglu_forward(both)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return fused().swiglu_backward(ctx.saved_tensors[0], grad.contiguous())


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, chosen: Tensor, share: Tensor, up: Tensor, down: Tensor) -> Tensor:
        share = share.contiguous()
        out, *kept = fused().experts_forward(x, chosen, share, up, down)
        ctx.save_for_backward(chosen, share, up, down, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, grad_share, grad_up, grad_down = fused().experts_backward(
            list(ctx.saved_tensors), grad.contiguous()
        )
        return grad_x, None, grad_share, grad_up, grad_down


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Zero-centred RMS norm over the last axis: x / rms(x) * (1 + weight), eps 1e-6."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + weight)


def add_norm(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(x + y, rms_norm(x + y, weight))."""
    if fused() is None:
        return x + y, rms_norm(x + y, weight)
    return _AddNorm.apply(x, y, weight)


def swiglu(both: Tensor) -> Tensor:
    """silu(first half) * second half of the last axis; `both` is [rows, 2 * width]."""
    if fused() is None:
        return plain_swiglu(both)
    return _SwiGLU.apply(both)


def plain_swiglu(both: Tensor) -> Tensor:
    """`swiglu` in plain torch."""
    gate, up = both.chunk(2, -1)
    return F.silu(gate) * up


def experts(x: Tensor, chosen: Tensor, share: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Sum over the chosen experts of share * down(swiglu(up(x))).

    x [N, H], chosen [N, k] expert ids, share [N, k], up [E, 2I, H] (gate rows first), down [E, H, I].
    """
    if fused() is None:
        return plain_experts(x, chosen, share, up, down)
    return _Experts.apply(x, chosen, share, up, down)


def plain_experts(x: Tensor, chosen: Tensor, share: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """`experts` in plain torch."""
    out = torch.zeros_like(x)
    for expert in range(up.shape[0]):
        token, choice = torch.where(chosen == expert)
        result = plain_swiglu(x[token] @ up[expert].T) @ down[expert].T
        out = out.index_add(0, token, result * share[token, choice, None])
    return out


def delta_net(
    mixed: Tensor, conv: Tensor, z: Tensor, b: Tensor, a: Tensor, a_log: Tensor, dt_bias: Tensor, norm: Tensor
) -> Tensor:
    """Gated delta net between its in and out projections, from an empty state.

    mixed [B, T, 3*heads*32] (q, k, v rows), conv [channels, 1, 4], z [B, T, heads*32], b and a [B, T, heads].
    """
    if fused() is None:
        return plain_delta_net(mixed, conv, z, b, a, a_log, dt_bias, norm)
    return _Delta.apply(mixed, conv, z, b, a, a_log, dt_bias, norm)


def plain_delta_net(
    mixed: Tensor, conv: Tensor, z: Tensor, b: Tensor, a: Tensor, a_log: Tensor, dt_bias: Tensor, norm: Tensor
) -> Tensor:
    """`delta_net` in plain torch, one token after the other."""
    batch, time, heads = b.shape
    padded = F.pad(mixed.transpose(1, 2), (conv.shape[-1] - 1, 0))
    active = F.silu(F.conv1d(padded, conv, groups=conv.shape[0])).transpose(1, 2)
    q, k, v = (part.view(batch, time, heads, -1) for part in active.chunk(3, -1))
    q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + 1e-6) * q.shape[-1] ** -0.5
    k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6)
    beta = b.sigmoid()
    decay = (-a_log.exp() * F.softplus(a + dt_bias)).exp()
    state = mixed.new_zeros(batch, heads, k.shape[-1], v.shape[-1])
    outputs = []
    for t in range(time):
        state = state * decay[:, t, :, None, None]
        recalled = torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        delta = beta[:, t, :, None] * (v[:, t] - recalled)
        state = state + k[:, t, :, :, None] * delta[:, :, None, :]
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    out = torch.stack(outputs, 1)
    out = out * torch.rsqrt(out.square().mean(-1, keepdim=True) + 1e-6) * norm
    return (out * F.silu(z.view(out.shape))).flatten(2)
