// Root-mean-square norms (Zhang and Sennrich 2019), alone, after adding a residual, and gated. Inside everything is
// fp32; a result is rounded once. The sum of squares is one chain in each lane, joined by the lanes' tree.
#pragma once

#include "../lanes/functions.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

QANAT_INLINE float inverse_root(float sum_of_squares, size_t size, float eps) {
    return 1.0f / __builtin_sqrtf(sum_of_squares / static_cast<float>(size) + eps);
}

QANAT_INLINE float sum_of_squares(const void* x, size_t start, bool is_bf16, size_t size) {
    Lanes squares = zero();
    for (size_t i = 0; i < size; i += kLanes) {
        const Lanes values = load_any(x, start + i, is_bf16, lanes_left(size, i));
        squares = fma(values, values, squares);
    }
    return sum(squares);
}

QANAT_INLINE Lanes weights_at(const NormArguments& a, size_t i, size_t count) {
    const Lanes weight = load_any(a.weight, i, a.is_weight_bf16, count);
    return a.is_zero_centred ? add(weight, broadcast(1.0f)) : weight;
}

static void rms_norm(const NormArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t start = a.x.start(row);
        const Lanes scale = broadcast(inverse_root(sum_of_squares(a.x.data, start, a.x.is_bf16, a.size), a.size, a.eps));
        for (size_t i = 0; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            const Lanes x = mul(load_any(a.x.data, start + i, a.x.is_bf16, count), scale);
            store_any(a.out, row * a.size + i, a.is_out_bf16, mul(x, weights_at(a, i, count)), count);
        }
    }
}

static void add_rms_norm(const NormArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t start = a.x.start(row), other = a.other.start(row);
        for (size_t i = 0; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            const Lanes x = load_any(a.x.data, start + i, a.x.is_bf16, count);
            const Lanes residual = load_any(a.other.data, other + i, a.other.is_bf16, count);
            store_any(a.total, row * a.size + i, a.is_out_bf16, add(x, residual), count);
        }
        // The norm reads the sum as it was stored (rule R9).
        const float squares = sum_of_squares(a.total, row * a.size, a.is_out_bf16, a.size);
        const Lanes scale = broadcast(inverse_root(squares, a.size, a.eps));
        for (size_t i = 0; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            const Lanes x = mul(load_any(a.total, row * a.size + i, a.is_out_bf16, count), scale);
            store_any(a.out, row * a.size + i, a.is_out_bf16, mul(x, weights_at(a, i, count)), count);
        }
    }
}

static void gated_rms_norm(const NormArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t start = a.x.start(row), gate = a.other.start(row);
        const Lanes scale = broadcast(inverse_root(sum_of_squares(a.x.data, start, a.x.is_bf16, a.size), a.size, a.eps));
        for (size_t i = 0; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            const Lanes x = mul(load_any(a.x.data, start + i, a.x.is_bf16, count), scale);
            const Lanes gated = silu(load_any(a.other.data, gate + i, a.other.is_bf16, count));
            store_any(a.out, row * a.size + i, a.is_out_bf16, mul(mul(x, weights_at(a, i, count)), gated), count);
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
