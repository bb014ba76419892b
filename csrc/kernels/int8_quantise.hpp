// Activations as int8. Each segment of a row has its own scale (rule R5), so that a rank that holds some of the segments
// has the bits of one that holds all; fixed ones come with the matrix.
#pragma once

#include "int8_values.hpp"

namespace qanat {
namespace QANAT_ISA {

// One segment: its numbers, zero beyond the inputs, its scale, and the sum of the numbers.
QANAT_INLINE int32_t quantise_segment(const QuantiseArguments& a, size_t start, size_t count, int8_t* to, float* scale) {
    const size_t length = a.packed.segment_length;
    const float largest = peak_of(a.x, start, count);
    if (largest != largest) {
        *scale = largest;
        __builtin_memset(to, 0, length);
        return 0;
    }
    *scale = a.packed.is_static ? a.packed.static_scale : largest / kLargest;
    const Lanes factor = broadcast(factor_of(largest));
    const Lanes divisor = broadcast(a.packed.static_scale), offset = broadcast(a.packed.static_offset);
    const auto exact = [&](Lanes values) __attribute__((always_inline)) {
        if (!a.packed.is_static) return mul(values, factor);
        return maximum(minimum(add(div(values, divisor), offset), broadcast(127.0f)), broadcast(-128.0f));
    };
    Bits sums = broadcast_bits(0);
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
        sums = add_bits(sums, store_int8(to + i, exact(load_any(a.x.data, start + i, a.x.is_bf16))));
    uint32_t total = 0, words[kLanes];
    __builtin_memcpy(words, &sums, sizeof words);
    for (size_t lane = 0; lane < kLanes; ++lane) total += words[lane] - uint32_t(i / kLanes) * kRounderBits;
    if (i < count) {
        alignas(16) int8_t last[kLanes];
        store_int8(last, exact(load_any(a.x.data, start + i, a.x.is_bf16, count - i)));
        for (size_t lane = 0; i < count; ++i, ++lane) total += static_cast<uint32_t>(int32_t(to[i] = last[lane]));
    }
    for (; i < length; ++i) to[i] = 0;
    return static_cast<int32_t>(total);
}

// Of a segment's cells; see QuantisedRows.
QANAT_INLINE void sum_cells(const PackedView& packed, const int8_t* values, int32_t* sums) {
    for (size_t i = 0; i < packed.num_cells(); ++i) {
        int32_t total = 0;
        for (size_t k = 0; k < packed.cell; ++k) total += values[i * packed.cell + k];
        sums[i] = -8 * total;
    }
}

static void quantise(const QuantiseArguments& a, size_t first, size_t last) {
    const size_t length = a.packed.segment_length, num_segments = a.packed.num_segments();
    for (size_t task = first; task < last; ++task) {
        const size_t row = task / num_segments, s = task % num_segments, left = a.packed.num_inputs - s * length;
        int8_t* to = a.out.values + row * a.packed.row_length() + s * length;
        const int32_t sum = quantise_segment(a, a.x.start(row) + s * length, left < length ? left : length, to,
                                             a.out.scales + row * kSegments + s);
        if (a.packed.kind == Kind::kInt8) a.out.sums[row * kSegments + s] = sum;
        else sum_cells(a.packed, to, a.out.sums + row * a.packed.num_sums() + s * a.packed.num_cells());
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
