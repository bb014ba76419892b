// Causal attention over a paged cache: online softmax (Milakov and Gimelshein 2018) over chunks of 64 keys that begin at
// absolute multiples of 64. A row's result is a function of its query and of the keys and values up to its position:
// block size, neighbours and threads do not enter.
#pragma once

#include "../lanes/functions.hpp"
#include "arguments.hpp"
#include "int8_values.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kChunk = 64;     // keys between two changes of the running maximum
constexpr size_t kMaxHeadDim = 256;
constexpr size_t kKeysAhead = 8;
constexpr int kHeadsAtOnce = 4;   // query heads of one KV head that share a pass over the keys

QANAT_INLINE Lanes load_cache(const float* p) { return load(p); }
QANAT_INLINE Lanes load_cache(const uint16_t* p) { return load_bf16(p); }
QANAT_INLINE Lanes load_cache(const int8_t* p) { return load_int8(p); }

// Elements from one head of the cache to the next: int8 has the head's scale behind its values.
template <class Stored>
QANAT_INLINE size_t head_size(size_t head_dim) {
    return sizeof(Stored) == 1 ? head_dim + sizeof(float) : head_dim;
}

// What one row's heads have gathered so far.
template <int kHeads>
struct Gathered {
    alignas(64) float query[kHeads][kMaxHeadDim];
    alignas(64) float weighted[kHeads][kMaxHeadDim];
    alignas(64) float scores[kHeads][kChunk];
    float highest[kHeads], total[kHeads];
};

// Heads lie so far apart that the core does not foresee them: each is asked for some time before it is read.
template <class Stored>
QANAT_INLINE void prefetch_head(const Stored* head, size_t head_dim) {
    const char* bytes = reinterpret_cast<const char*>(head);
    for (size_t i = 0; i < head_dim * sizeof(Stored); i += 64) __builtin_prefetch(bytes + i, 0, 2);
}

template <class Stored, int kHeads>
static inline void score_keys(Gathered<kHeads>& g, const Stored* const* keys, const Stored* const* values, size_t num_keys,
                              size_t head_dim) {
    for (size_t j = 0; j < num_keys; ++j) {
        prefetch_head(values[j], head_dim);
        if (j + kKeysAhead < num_keys) prefetch_head(keys[j + kKeysAhead], head_dim);
        Lanes products[kHeads];
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) products[h] = zero();
        for (size_t i = 0; i < head_dim; i += kLanes) {
            const Lanes key = load_cache(keys[j] + i);
#pragma GCC unroll 4
            for (int h = 0; h < kHeads; ++h) products[h] = fma(load(g.query[h] + i), key, products[h]);
        }
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) g.scores[h][j] = sum(products[h]);
    }
}

// Scores become weights; the sums so far are scaled to the new maximum.
template <int kHeads>
static inline void fold_scores(Gathered<kHeads>& g, size_t num_keys, size_t head_dim) {
    for (int h = 0; h < kHeads; ++h) {
        for (size_t j = num_keys; j < kChunk; ++j) g.scores[h][j] = -__builtin_inff();
        Lanes part[4];
        for (size_t i = 0; i < 4; ++i) part[i] = load(g.scores[h] + i * kLanes);
        const float own = peak(maximum(maximum(part[0], part[1]), maximum(part[2], part[3])));
        const float highest = own > g.highest[h] ? own : g.highest[h];
        const float decay = exponential_of(g.highest[h] - highest);
        for (size_t i = 0; i < 4; ++i) {
            part[i] = exponential(sub(part[i], broadcast(highest)));
            store(g.scores[h] + i * kLanes, part[i]);
        }
        const float added = sum(add(add(part[0], part[1]), add(part[2], part[3])));
        g.total[h] = g.total[h] * decay + added;
        g.highest[h] = highest;
        for (size_t i = 0; i < head_dim; i += kLanes)
            store(g.weighted[h] + i, mul(load(g.weighted[h] + i), broadcast(decay)));
    }
}

// Scores, or weights, times the scales of their keys, or values; those of float types have none.
template <class Stored, int kHeads>
QANAT_INLINE void apply_scales(Gathered<kHeads>& g, const Stored* const* heads, size_t num_keys, size_t head_dim) {
    if constexpr (sizeof(Stored) == 1)
        for (size_t j = 0; j < num_keys; ++j) {
            float scale;
            __builtin_memcpy(&scale, heads[j] + head_dim, sizeof scale);
            for (int h = 0; h < kHeads; ++h) g.scores[h][j] = g.scores[h][j] * scale;
        }
}

template <class Stored, int kHeads>
static inline void add_values(Gathered<kHeads>& g, const Stored* const* values, size_t num_keys, size_t head_dim) {
    for (size_t i = 0; i < head_dim; i += kLanes) {
        Lanes sums[kHeads];
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) sums[h] = load(g.weighted[h] + i);
        for (size_t j = 0; j < num_keys; ++j) {
            const Lanes value = load_cache(values[j] + i);
#pragma GCC unroll 4
            for (int h = 0; h < kHeads; ++h) sums[h] = fma(broadcast(g.scores[h][j]), value, sums[h]);
        }
#pragma GCC unroll 4
        for (int h = 0; h < kHeads; ++h) store(g.weighted[h] + i, sums[h]);
    }
}

template <class Stored, int kHeads>
static void attend(const AttentionArguments& a, size_t row, size_t kv_head, size_t first_head) {
    Gathered<kHeads> g;
    for (int h = 0; h < kHeads; ++h) {
        const size_t start = a.q.start(row * a.num_heads + first_head + h);
        for (size_t i = 0; i < a.head_dim; i += kLanes) {
            store(g.query[h] + i, mul(load_any(a.q.data, start + i, a.q.is_bf16), broadcast(a.scale)));
            store(g.weighted[h] + i, zero());
        }
        g.highest[h] = -__builtin_inff();
        g.total[h] = 0.0f;
    }
    const size_t num_keys = static_cast<size_t>(a.row_positions[row]) + 1;
    const int32_t* table = a.block_tables + static_cast<size_t>(a.row_requests[row]) * a.table_stride;
    const Stored* cache = static_cast<const Stored*>(a.cache);
    for (size_t begin = 0; begin < num_keys; begin += kChunk) {
        const size_t count = num_keys - begin < kChunk ? num_keys - begin : kChunk;
        const Stored *keys[kChunk], *values[kChunk];
        for (size_t j = 0; j < count; ++j) {
            const size_t position = begin + j;
            const size_t slot = static_cast<size_t>(table[position / a.block_size]) * a.block_size + position % a.block_size;
            keys[j] = cache + (slot * a.num_kv_heads + kv_head) * head_size<Stored>(a.head_dim);
            values[j] = keys[j] + a.values_start;
        }
        score_keys<Stored, kHeads>(g, keys, values, count, a.head_dim);
        apply_scales<Stored, kHeads>(g, keys, count, a.head_dim);
        fold_scores<kHeads>(g, count, a.head_dim);
        apply_scales<Stored, kHeads>(g, values, count, a.head_dim);
        add_values<Stored, kHeads>(g, values, count, a.head_dim);
    }
    for (int h = 0; h < kHeads; ++h) {
        const size_t head = row * a.num_heads + first_head + h;
        for (size_t i = 0; i < a.head_dim; i += kLanes) {
            Lanes result = div(load(g.weighted[h] + i), broadcast(g.total[h]));
            if (a.gate.data) result = mul(result, sigmoid(load_any(a.gate.data, a.gate.start(head) + i, a.gate.is_bf16)));
            store_any(a.out, head * a.head_dim + i, a.is_out_bf16, result);
        }
    }
}

template <class Stored>
static void attend_group(const AttentionArguments& a, size_t row, size_t kv_head) {
    const size_t group = a.num_heads / a.num_kv_heads;
    size_t done = 0;
    for (; done + kHeadsAtOnce <= group; done += kHeadsAtOnce)
        attend<Stored, kHeadsAtOnce>(a, row, kv_head, kv_head * group + done);
    for (; done < group; ++done) attend<Stored, 1>(a, row, kv_head, kv_head * group + done);
}

// Tasks are (row, KV head), heads fastest.
static void attention(const AttentionArguments& a, size_t first, size_t last) {
    for (size_t task = first; task < last; ++task) {
        const size_t row = task / a.num_kv_heads, kv_head = task % a.num_kv_heads;
        if (a.cache_kind == Kind::kInt8) attend_group<int8_t>(a, row, kv_head);
        else if (a.cache_kind == Kind::kBf16) attend_group<uint16_t>(a, row, kv_head);
        else attend_group<float>(a, row, kv_head);
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
