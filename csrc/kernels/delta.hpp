// Linear attention: causal convolution and the gated delta rule (Yang et al. 2024) as an fp32 recurrence, for prefill,
// decode and the verification of drafts alike (rule R3), so that how a prompt is cut does not enter.
//
// Three kernels, called one after the other: `delta_inputs` makes of each line what the rule reads, `delta_rule` runs it,
// and `delta_kept`, beside it, brings the convolution's state up to date and keeps held rows. The first only reads states.
#pragma once

#include "../lanes/functions.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kMaxTaps = 8;
constexpr size_t kMaxKeyDim = 256;

// The convolution's inputs of one line, all channels.
struct Inputs {
    const void* data;  // null: zeros
    size_t start;
    bool is_bf16;
};

QANAT_INLINE Inputs held_row(const DeltaNetArguments& a, const Span& span, int32_t row) {
    const size_t at = static_cast<size_t>(span.state_id) * a.max_held + static_cast<size_t>(row);
    return {a.held_inputs, at * a.num_channels(), a.is_state_bf16};
}

// Of a request's line; those before its first are what the state holds.
QANAT_INLINE Inputs inputs_at(const DeltaNetArguments& a, const Span& span, int32_t line) {
    if (line >= span.num_absorbed) {
        const size_t row = static_cast<size_t>(span.first_row + line - span.num_absorbed);
        return {a.x.data, a.x.start(row), a.x.is_bf16};
    }
    if (line >= 0) return held_row(a, span, span.first_absorbed + line);
    if (span.is_new) return {nullptr, 0, false};
    const size_t at = static_cast<size_t>(span.state_id) * a.num_past() + a.num_past() - static_cast<size_t>(-line);
    return {a.conv_states, at * a.num_channels(), a.is_state_bf16};
}

// As the state holds them: what is kept is rounded before its first use (rule R9).
QANAT_INLINE Lanes input_lanes(const DeltaNetArguments& a, const Inputs& from, size_t channel) {
    if (!from.data) return zero();
    const Lanes x = load_any(from.data, from.start + channel, from.is_bf16);
    return a.is_state_bf16 && !from.is_bf16 ? rounded(x, true) : x;
}

// silu of the convolution for a head's channels, rounded to the type of the rows.
QANAT_INLINE void convolve(const DeltaNetArguments& a, const Inputs* taps, size_t channel, size_t size, float* out) {
    for (size_t i = 0; i < size; i += kLanes) {
        Lanes total = zero();
        for (size_t tap = 0; tap < a.num_taps; ++tap) {
            const Lanes weight = load_any(a.weight, tap * a.num_channels() + channel + i, a.is_weight_bf16);
            total = fma(weight, input_lanes(a, taps[tap], channel + i), total);
        }
        store(out + i, rounded(silu(total), a.x.is_bf16));
    }
}

// A head scaled to length one (eps inside the root, on the sum), then by `scale`.
QANAT_INLINE void make_unit(float* x, size_t size, float scale) {
    Lanes squares = zero();
    for (size_t i = 0; i < size; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
    const Lanes length = broadcast(1.0f / __builtin_sqrtf(sum(squares) + 1e-6f));
    for (size_t i = 0; i < size; i += kLanes) store(x + i, mul(mul(load(x + i), length), broadcast(scale)));
}

// Of a row's heads: log-decay -exp(A_log) softplus(a + dt_bias), and write strength sigmoid(b).
static void make_gates(const DeltaNetArguments& g, size_t row, float* log_decay, float* strength) {
    const size_t from_a = g.a.start(row), from_b = g.b.start(row);
    for (size_t i = 0; i < g.num_value_heads; i += kLanes) {
        const size_t count = lanes_left(g.num_value_heads, i);
        const Lanes rate = exponential(load_any(g.a_log, i, false, count));
        const Lanes bias = load_any(g.dt_bias, i, g.is_bias_bf16, count);
        const Lanes step = softplus(add(load_any(g.a.data, from_a + i, g.a.is_bf16, count), bias));
        store_any(log_decay, i, false, mul(sub(zero(), rate), step), count);
        store_any(strength, i, false, sigmoid(load_any(g.b.data, from_b + i, g.b.is_bf16, count)), count);
    }
}

QANAT_INLINE float* held_gates(const DeltaNetArguments& a, const Span& span, int32_t row) {
    return a.held_gates + (static_cast<size_t>(span.state_id) * a.max_held + static_cast<size_t>(row)) * 2 * a.num_value_heads;
}

// Both gates of a line: made of its row, or as they were kept.
static void line_gates(const DeltaNetArguments& a, const Span& span, int32_t line, float* log_decay, float* strength) {
    if (line >= span.num_absorbed) {
        make_gates(a, static_cast<size_t>(span.first_row + line - span.num_absorbed), log_decay, strength);
        return;
    }
    const float* kept = held_gates(a, span, span.first_absorbed + line);
    __builtin_memcpy(log_decay, kept, a.num_value_heads * sizeof(float));
    __builtin_memcpy(strength, kept + a.num_value_heads, a.num_value_heads * sizeof(float));
}

// Tasks are (line, key head); that of the first head makes the gates of all.
static void delta_inputs(const DeltaNetArguments& a, size_t first, size_t last) {
    const size_t group = a.num_value_heads / a.num_key_heads, keys = a.num_key_heads * a.key_dim;
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(a.key_dim));
    for (size_t task = first; task < last; ++task) {
        const size_t place = task / a.num_key_heads, head = task % a.num_key_heads;
        const Span& span = a.spans[a.line_spans[place]];
        const int32_t line = static_cast<int32_t>(place) - span.first_line, num_past = static_cast<int32_t>(a.num_past());
        Inputs taps[kMaxTaps];
        for (int32_t tap = 0; tap <= num_past; ++tap) taps[tap] = inputs_at(a, span, line + tap - num_past);
        float *q = a.q + task * a.key_dim, *k = a.k + task * a.key_dim;
        if (line >= span.num_absorbed) {
            convolve(a, taps, head * a.key_dim, a.key_dim, q);
            make_unit(q, a.key_dim, scale);
        }
        convolve(a, taps, keys + head * a.key_dim, a.key_dim, k);
        make_unit(k, a.key_dim, 1.0f);
        const size_t value_head = head * group, at = place * a.num_value_heads;
        convolve(a, taps, 2 * keys + value_head * a.value_dim, group * a.value_dim, a.v + (at + value_head) * a.value_dim);
        if (head == 0) line_gates(a, span, line, a.log_decay + at, a.strength + at);
    }
}

// One token: S <- e^g S; d = beta (v - k S); S <- S + k d; o = q S. Sums over the key dimensions are four chains. A line
// that is absorbed only has no result, and its q is not read. `ahead` is how far the columns lie that come next.
template <int kBlocks, bool kHasResult>
static inline void delta_token(const float* q, const float* k, Lanes decay, Lanes strength, const Lanes* v, size_t key_dim,
                               const float* from, size_t from_stride, float* to, size_t to_stride, size_t ahead, Lanes* out) {
    constexpr size_t kWidth = kBlocks * kLanes;
    alignas(64) float decayed[kMaxKeyDim * kWidth];
    Lanes sums[4][kBlocks], change[kBlocks];
    for (int c = 0; c < 4; ++c)
        for (int b = 0; b < kBlocks; ++b) sums[c][b] = zero();
    for (size_t i = 0; i < key_dim; i += 4)
#pragma GCC unroll 4
        for (int c = 0; c < 4; ++c) {
            for (int b = 0; ahead && b < kBlocks; ++b) __builtin_prefetch(from + (i + c) * from_stride + ahead + b * kLanes, 0, 2);
#pragma GCC unroll 2
            for (int b = 0; b < kBlocks; ++b) {
                const Lanes state = mul(load(from + (i + c) * from_stride + b * kLanes), decay);
                store(decayed + (i + c) * kWidth + b * kLanes, state);
                sums[c][b] = fma(broadcast(k[i + c]), state, sums[c][b]);
            }
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
                if constexpr (kHasResult) sums[c][b] = fma(broadcast(q[i + c]), state, sums[c][b]);
            }
    if constexpr (kHasResult)
        for (int b = 0; b < kBlocks; ++b) out[b] = add(add(sums[0][b], sums[1][b]), add(sums[2][b], sums[3][b]));
}

// From a request's matrices to those of another place.
QANAT_INLINE ptrdiff_t state_distance(const DeltaNetArguments& a, const Span& span, int32_t state_id) {
    const ptrdiff_t size = static_cast<ptrdiff_t>(a.num_value_heads * a.key_dim * a.value_dim);
    return (static_cast<ptrdiff_t>(state_id) - static_cast<ptrdiff_t>(span.state_id)) * size;
}

template <int kBlocks>
static inline void copy_columns(const DeltaNetArguments& a, const float* from, size_t from_stride, float* to) {
    for (size_t i = 0; i < a.key_dim; ++i)
        for (size_t b = 0; b < kBlocks; ++b) store(to + i * a.value_dim + b * kLanes, load(from + i * from_stride + b * kLanes));
}

// All lines of a request for some value columns of a head. Between the first and the last line the columns lie together
// in the core's cache; in the cache tensor their rows are so far apart that they would push each other out.
template <int kBlocks>
static void delta_columns(const DeltaNetArguments& a, const Span& span, size_t head, size_t column) {
    constexpr size_t kWidth = kBlocks * kLanes;
    alignas(64) float own[kMaxKeyDim * kWidth];
    const size_t key_head = head / (a.num_value_heads / a.num_key_heads);
    float* stored = a.states + (static_cast<size_t>(span.state_id) * a.num_value_heads + head) * a.key_dim * a.value_dim + column;
    const float* from = stored;
    size_t from_stride = a.value_dim;
    // Memory is read in such short pieces that the core does not foresee the next ones.
    size_t ahead = column + kWidth < a.value_dim ? kWidth : kWidth + (a.key_dim - 1) * a.value_dim;
    if (span.is_new) {
        ahead = 0;
        for (size_t i = 0; i < a.key_dim * kWidth; i += kLanes) store(own + i, zero());
        from = own;
        from_stride = kWidth;
    }
    int32_t next_store = span.first_store;
    const int32_t end_store = span.first_store + span.num_stores;
    for (int32_t line = 0; line < span.num_lines(); ++line) {
        const size_t place = static_cast<size_t>(span.first_line + line), at = place * a.num_value_heads + head;
        const float *q = a.q + (place * a.num_key_heads + key_head) * a.key_dim, *k = a.k + (q - a.q);
        const bool is_stored = line + 1 == span.num_kept();
        float* to = is_stored ? stored : own;
        const size_t to_stride = is_stored ? a.value_dim : kWidth;
        const Lanes decay = exponential(broadcast(a.log_decay[at])), strength = broadcast(a.strength[at]);
        Lanes v[kBlocks], out[kBlocks];
        for (int b = 0; b < kBlocks; ++b) v[b] = load(a.v + at * a.value_dim + column + b * kLanes);
        if (line < span.num_absorbed) {
            delta_token<kBlocks, false>(q, k, decay, strength, v, a.key_dim, from, from_stride, to, to_stride, ahead, out);
        } else {
            delta_token<kBlocks, true>(q, k, decay, strength, v, a.key_dim, from, from_stride, to, to_stride, ahead, out);
            const size_t row = static_cast<size_t>(span.first_row + line - span.num_absorbed);
            for (int b = 0; b < kBlocks; ++b)
                store_any(a.out, (row * a.num_value_heads + head) * a.value_dim + column + b * kLanes, a.is_out_bf16, out[b]);
        }
        for (; next_store < end_store && a.stores[next_store].num_lines == line + 1; ++next_store)
            copy_columns<kBlocks>(a, to, to_stride, stored + state_distance(a, span, a.stores[next_store].state_id));
        from = to;
        from_stride = to_stride;
        ahead = 0;
    }
}

// Tasks are (request, value head, 16 value columns), columns fastest.
static void delta_rule(const DeltaNetArguments& a, size_t first, size_t last) {
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

QANAT_INLINE void copy_inputs(const DeltaNetArguments& a, const Inputs& from, void* to, size_t start) {
    for (size_t i = 0; i < a.num_channels(); i += kLanes) store_any(to, start + i, a.is_state_bf16, input_lanes(a, from, i));
}

// Tasks are requests. What is left at other places comes first, while the state still holds what was before. Then, oldest
// first: where little is new, the state is moved within itself; and what is absorbed of the
// held rows is read before others take their places.
static void delta_kept(const DeltaNetArguments& a, size_t first, size_t last) {
    for (size_t task = first; task < last; ++task) {
        const Span& span = a.spans[task];
        const int32_t num_past = static_cast<int32_t>(a.num_past());
        const size_t state = static_cast<size_t>(span.state_id) * a.num_past();
        for (int32_t s = span.first_store; s < span.first_store + span.num_stores; ++s)
            for (int32_t i = 0; i < num_past; ++i)
                copy_inputs(a, inputs_at(a, span, a.stores[s].num_lines - num_past + i), a.conv_states,
                            (static_cast<size_t>(a.stores[s].state_id) * a.num_past() + static_cast<size_t>(i)) * a.num_channels());
        for (int32_t i = 0; span.num_kept() > 0 && i < num_past; ++i)
            copy_inputs(a, inputs_at(a, span, span.num_kept() - num_past + i), a.conv_states,
                        (state + static_cast<size_t>(i)) * a.num_channels());
        for (int32_t i = 0; span.is_held && i < span.num_rows; ++i) {
            const size_t at = static_cast<size_t>(span.first_line + span.num_absorbed + i) * a.num_value_heads;
            copy_inputs(a, inputs_at(a, span, span.num_absorbed + i), a.held_inputs, held_row(a, span, i).start);
            float* gates = held_gates(a, span, i);
            __builtin_memcpy(gates, a.log_decay + at, a.num_value_heads * sizeof(float));
            __builtin_memcpy(gates + a.num_value_heads, a.strength + at, a.num_value_heads * sizeof(float));
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
