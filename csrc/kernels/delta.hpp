// Linear attention: causal convolution and the gated delta rule (Yang et al. 2024) as an fp32 recurrence, for prefill
// and decode alike (rule R3), so that how a prompt is cut does not enter.
#pragma once

#include "../lanes/functions.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kMaxTaps = 8;
constexpr size_t kMaxKeyDim = 256;
constexpr size_t kConvChannels = 64;  // of one task

QANAT_INLINE void conv_lanes(const ConvArguments& a, const Span& span, size_t channel, size_t count) {
    const size_t num_past = a.num_taps - 1;
    Lanes weights[kMaxTaps], past[kMaxTaps];
    for (size_t tap = 0; tap < a.num_taps; ++tap) {
        alignas(64) float column[kLanes] = {};
        for (size_t i = 0; i < count; ++i)
            column[i] = scalar_any(a.weight, (channel + i) * a.num_taps + tap, a.is_weight_bf16);
        weights[tap] = load(column);
    }
    const size_t state = static_cast<size_t>(span.state_id) * num_past * a.num_channels + channel;
    for (size_t i = 0; i < num_past; ++i)
        past[i] = span.is_new ? zero() : load_any(a.states, state + i * a.num_channels, a.is_state_bf16, count);
    for (int32_t t = 0; t < span.num_rows; ++t) {
        const size_t row = static_cast<size_t>(span.first_row + t);
        const Lanes x = load_any(a.x.data, a.x.start(row) + channel, a.x.is_bf16, count);
        past[num_past] = rounded(x, a.is_state_bf16);  // store, then use (rule R9)
        Lanes total = zero();
        for (size_t tap = 0; tap < a.num_taps; ++tap) total = fma(weights[tap], past[tap], total);
        store_any(a.out, row * a.num_channels + channel, a.is_out_bf16, silu(total), count);
        for (size_t i = 0; i < num_past; ++i) past[i] = past[i + 1];
    }
    for (size_t i = 0; i < num_past; ++i)
        store_any(a.states, state + i * a.num_channels, a.is_state_bf16, past[i], count);
}

// Tasks are (request, 64 channels), channels fastest.
static void conv(const ConvArguments& a, size_t first, size_t last) {
    const size_t num_blocks = (a.num_channels + kConvChannels - 1) / kConvChannels;
    for (size_t task = first; task < last; ++task) {
        const Span& span = a.spans[task / num_blocks];
        const size_t begin = task % num_blocks * kConvChannels;
        const size_t end = begin + kConvChannels < a.num_channels ? begin + kConvChannels : a.num_channels;
        for (size_t channel = begin; channel < end; channel += kLanes)
            conv_lanes(a, span, channel, lanes_left(end, channel));
    }
}

// Heads scaled to length one (eps inside the root, on the sum), then by `scale`. Tasks are (row, head).
static void unit(const UnitArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t start = a.x.start(row);
        Lanes squares = zero();
        for (size_t i = 0; i < a.size; i += kLanes) {
            const Lanes x = load_any(a.x.data, start + i, a.x.is_bf16);
            squares = fma(x, x, squares);
        }
        const Lanes length = broadcast(1.0f / __builtin_sqrtf(sum(squares) + 1e-6f));
        for (size_t i = 0; i < a.size; i += kLanes) {
            const Lanes x = mul(load_any(a.x.data, start + i, a.x.is_bf16), length);
            store(a.out + row * a.size + i, mul(x, broadcast(a.scale)));
        }
    }
}

// One token: S <- e^g S; d = beta (v - k S); S <- S + k d; o = q S. Sums over the key dimensions are four chains.
template <int kBlocks>
static inline void delta_token(const float* q, const float* k, Lanes decay, Lanes strength, const Lanes* v, size_t key_dim,
                               const float* from, size_t from_stride, float* to, size_t to_stride, Lanes* out) {
    constexpr size_t kWidth = kBlocks * kLanes;
    alignas(64) float decayed[kMaxKeyDim * kWidth];
    Lanes sums[4][kBlocks], change[kBlocks];
    for (int c = 0; c < 4; ++c)
        for (int b = 0; b < kBlocks; ++b) sums[c][b] = zero();
    for (size_t i = 0; i < key_dim; i += 4)
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c)
#pragma GCC unroll 2
            for (int b = 0; b < kBlocks; ++b) {
                const Lanes state = mul(load(from + (i + c) * from_stride + b * kLanes), decay);
                store(decayed + (i + c) * kWidth + b * kLanes, state);
                sums[c][b] = fma(broadcast(k[i + c]), state, sums[c][b]);
            }
    for (int b = 0; b < kBlocks; ++b) {
        const Lanes recalled = add(add(sums[0][b], sums[1][b]), add(sums[2][b], sums[3][b]));
        change[b] = mul(sub(v[b], recalled), strength);
        for (int c = 0; c < 4; ++c) sums[c][b] = zero();
    }
    for (size_t i = 0; i < key_dim; i += 4)
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c)
#pragma GCC unroll 2
            for (int b = 0; b < kBlocks; ++b) {
                const Lanes state = fma(broadcast(k[i + c]), change[b], load(decayed + (i + c) * kWidth + b * kLanes));
                store(to + (i + c) * to_stride + b * kLanes, state);
                sums[c][b] = fma(broadcast(q[i + c]), state, sums[c][b]);
            }
    for (int b = 0; b < kBlocks; ++b) out[b] = add(add(sums[0][b], sums[1][b]), add(sums[2][b], sums[3][b]));
}

// All tokens of a request for some value columns of a head. Between the first and the last token the columns lie
// together in the core's cache; in the cache tensor their rows are so far apart that they would push each other out.
template <int kBlocks>
static void delta_columns(const DeltaArguments& a, const Span& span, size_t head, size_t column) {
    constexpr size_t kWidth = kBlocks * kLanes;
    alignas(64) float own[kMaxKeyDim * kWidth];
    const size_t key_head = head / (a.num_value_heads / a.num_key_heads);
    float* stored = a.states + (static_cast<size_t>(span.state_id) * a.num_value_heads + head) * a.key_dim * a.value_dim + column;
    const float* from = stored;
    size_t from_stride = a.value_dim;
    if (span.is_new) {
        for (size_t i = 0; i < a.key_dim * kWidth; i += kLanes) store(own + i, zero());
        from = own;
        from_stride = kWidth;
    }
    for (int32_t t = 0; t < span.num_rows; ++t) {
        const size_t row = static_cast<size_t>(span.first_row + t), at = row * a.num_value_heads + head;
        const size_t key = (row * a.num_key_heads + key_head) * a.key_dim;
        const bool is_last = t + 1 == span.num_rows;
        Lanes v[kBlocks], out[kBlocks];
        for (int b = 0; b < kBlocks; ++b) v[b] = load_any(a.v.data, a.v.start(at) + column + b * kLanes, a.v.is_bf16);
        delta_token<kBlocks>(a.q + key, a.k + key, exponential(broadcast(a.log_decay[at])), broadcast(a.strength[at]), v,
                             a.key_dim, from, from_stride, is_last ? stored : own, is_last ? a.value_dim : kWidth, out);
        for (int b = 0; b < kBlocks; ++b)
            store_any(a.out, at * a.value_dim + column + b * kLanes, a.is_out_bf16, out[b]);
        from = own;
        from_stride = kWidth;
    }
}

// Tasks are (request, value head, 16 value columns), columns fastest.
static void delta(const DeltaArguments& a, size_t first, size_t last) {
    const size_t num_blocks = a.value_dim / kLanes;
    size_t task = first;
    while (task < last) {
        const size_t block = task % num_blocks, head = task / num_blocks % a.num_value_heads;
        const Span& span = a.spans[task / num_blocks / a.num_value_heads];
        if (block + 1 < num_blocks && task + 1 < last) {
            delta_columns<2>(a, span, head, block * kLanes);
            task += 2;
        } else {
            delta_columns<1>(a, span, head, block * kLanes);
            task += 1;
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
