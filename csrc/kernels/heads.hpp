// Queries, keys and values on their way to attention, head by head: norm, rotary embedding, and for keys and values their
// place in the cache. What attention reads of them is what is stored there (rule R9).
#pragma once

#include "arguments.hpp"
#include "attention.hpp"
#include "int8_values.hpp"
#include "norm.hpp"
#include "pointwise.hpp"

namespace qanat {
namespace QANAT_ISA {

QANAT_INLINE const void* element(const void* data, size_t i, bool is_bf16) {
    return static_cast<const char*>(data) + i * (is_bf16 ? 2 : 4);
}

QANAT_INLINE void store_plain(void* cache, size_t to, bool is_bf16, const void* x, bool is_x_bf16, size_t size) {
    for (size_t i = 0; i < size; i += kLanes) store_any(cache, to + i, is_bf16, load_any(x, i, is_x_bf16));
}

// A head that holds a value that is not finite gets NaN as its scale.
QANAT_INLINE void store_scaled(int8_t* to, const void* x, bool is_x_bf16, size_t size) {
    const float largest = peak_of({x, is_x_bf16, 1, 0, 0}, 0, size), scale = largest / kLargest;
    const Lanes factor = broadcast(factor_of(largest));
    if (largest != largest) __builtin_memset(to, 0, size);
    else for (size_t i = 0; i < size; i += kLanes) store_int8(to + i, mul(load_any(x, i, is_x_bf16), factor));
    __builtin_memcpy(to + size, &scale, sizeof scale);
}

// A head of whole lanes to its place; `start` is where keys or values begin.
QANAT_INLINE void store_head(const HeadArguments& a, size_t row, size_t head, size_t start, const void* x, bool is_x_bf16) {
    const bool is_scaled = a.cache_kind == Kind::kInt8;
    const size_t size = is_scaled ? head_size<int8_t>(a.head_dim) : a.head_dim;
    const size_t to = start + (static_cast<size_t>(a.slots[row]) * a.num_kv_heads + head) * size;
    if (is_scaled) store_scaled(static_cast<int8_t*>(a.cache) + to, x, is_x_bf16, a.head_dim);
    else store_plain(a.cache, to, a.cache_kind == Kind::kBf16, x, is_x_bf16, a.head_dim);
}

// Norm, where there is a weight, and rotary embedding of one head, each rounded to its type.
static void turn_head(const HeadArguments& a, size_t row, const Rows& x, size_t start, const void* weight, void* out) {
    alignas(64) unsigned char normed[kMaxHeadDim * sizeof(float)];
    const Rows own{element(x.data, start, x.is_bf16), x.is_bf16, 1, 0, 0};
    const Rows turned{weight != nullptr ? normed : own.data, x.is_bf16, 1, 0, 0};
    if (weight != nullptr) {
        rms_norm({own, own, weight, a.is_weight_bf16, a.is_zero_centred, normed, nullptr, x.is_bf16, a.head_dim, a.eps}, 0, 1);
    }
    rotary({turned, element(a.cosines, row * a.half, a.is_angle_bf16),
            element(a.sines, row * a.half, a.is_angle_bf16), a.is_angle_bf16, out, x.is_bf16, a.head_dim, a.half}, 0, 1);
}

// Tasks are (row, head), queries' heads first.
static void heads(const HeadArguments& a, size_t first, size_t last) {
    alignas(64) unsigned char key[kMaxHeadDim * sizeof(float)];
    const size_t heads_of_row = a.num_heads + a.num_kv_heads;
    for (size_t task = first; task < last; ++task) {
        const size_t row = task / heads_of_row, head = task % heads_of_row;
        if (head < a.num_heads) {
            const size_t at = row * a.num_heads + head, width = a.q.is_bf16 ? 2 : 4;
            turn_head(a, row, a.q, a.q.start(at), a.q_weight, static_cast<char*>(a.out) + at * a.head_dim * width);
            continue;
        }
        const size_t own = head - a.num_heads, at = row * a.num_kv_heads + own;
        turn_head(a, row, a.k, a.k.start(at), a.k_weight, key);
        store_head(a, row, own, 0, key, a.k.is_bf16);
        store_head(a, row, own, a.values_start, element(a.v.data, a.v.start(at), a.v.is_bf16), a.v.is_bf16);
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
