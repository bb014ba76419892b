// Ops whose every element stands for itself: the gated unit, rotary embedding (Su et al. 2021).
#pragma once

#include "../lanes/functions.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

static void swiglu(const SwigluArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t gate = a.gate.start(row), up = a.up.start(row);
        for (size_t i = 0; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            const Lanes gated = silu(load_any(a.gate.data, gate + i, a.gate.is_bf16, count));
            const Lanes value = load_any(a.up.data, up + i, a.up.is_bf16, count);
            store_any(a.out, row * a.size + i, a.is_out_bf16, mul(gated, value), count);
        }
    }
}

// Dimension i < half turns together with i + half; the rest passes through. Products and difference are rounded apart:
// a fused one would depend on which of the two products the compiler or the machine fuses.
static void rotary(const RotaryArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t start = a.x.start(row), to = row * a.size;
        const size_t angle = row / a.x.num_inner * a.half;
        for (size_t i = 0; i < a.half; i += kLanes) {
            const size_t count = lanes_left(a.half, i);
            const Lanes cosine = load_any(a.cosines, angle + i, a.is_angle_bf16, count);
            const Lanes sine = load_any(a.sines, angle + i, a.is_angle_bf16, count);
            const Lanes x = load_any(a.x.data, start + i, a.x.is_bf16, count);
            const Lanes y = load_any(a.x.data, start + a.half + i, a.x.is_bf16, count);
            store_any(a.out, to + i, a.is_out_bf16, sub(mul(x, cosine), mul(y, sine)), count);
            store_any(a.out, to + a.half + i, a.is_out_bf16, add(mul(y, cosine), mul(x, sine)), count);
        }
        for (size_t i = 2 * a.half; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            store_any(a.out, to + i, a.is_out_bf16, load_any(a.x.data, start + i, a.x.is_bf16, count), count);
        }
    }
}

// The functions by number, for tests of their accuracy and of their bits; from 4 on such lane operations as others use
// only where what they do with a value that is not a number cannot be seen.
static void functions(int which, const float* x, float* out, size_t count) {
    for (size_t i = 0; i < count; i += kLanes) {
        const size_t some = lanes_left(count, i);
        Lanes value = load_some(x + i, some);
        if (which == 0) value = exponential(value);
        if (which == 1) value = sigmoid(value);
        if (which == 2) value = silu(value);
        if (which == 3) value = softplus(value);
        if (which == 4) value = maximum(value, broadcast(0.0f));
        if (which == 5) value = minimum(value, broadcast(0.0f));
        if (which == 6) value = broadcast(peak(value));
        store_some(out + i, value, some);
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
