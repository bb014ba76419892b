// Activations as int8. Each segment of a row has its own scale (rule R5), so that a rank that holds some of the segments
// has the bits of one that holds all; fixed ones come with the matrix.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr float kLargest = 127.0f;
// Added to a number of at most 2^22, it leaves the nearest whole number (ties to even) in the low bits.
constexpr float kRounder = 12582912.0f;

// 16 whole numbers from -128 to 127.
QANAT_INLINE void store_int8(int8_t* to, Lanes x, size_t count) {
    alignas(64) int32_t words[kLanes];
    const Lanes shifted = add(x, broadcast(kRounder));
    store(reinterpret_cast<float*>(words), shifted);
    for (size_t i = 0; i < count; ++i) to[i] = static_cast<int8_t>(static_cast<uint32_t>(words[i]) & 0xffu);
}

// The largest magnitude of a segment; NaN if one of its values is not finite.
QANAT_INLINE float peak_of(const Rows& x, size_t start, size_t count) {
    Lanes largest = zero(), fault = zero();
    for (size_t i = 0; i < count; i += kLanes) {
        const Lanes values = load_any(x.data, start + i, x.is_bf16, lanes_left(count, i));
        largest = maximum(largest, maximum(values, sub(zero(), values)));
        fault = fma(values, zero(), fault);  // zero unless a value is infinite or not a number
    }
    return sum(fault) == 0.0f ? peak(largest) : __builtin_nanf("");
}

QANAT_INLINE void quantise_segment(const QuantiseArguments& a, size_t start, size_t count, int8_t* to, float* scale) {
    const size_t length = a.packed.segment_length;
    const float largest = peak_of(a.x, start, count);
    if (largest != largest) {
        *scale = __builtin_nanf("");
        __builtin_memset(to, 0, length);
        return;
    }
    const float quotient = kLargest / largest;
    const Lanes factor = broadcast(quotient <= 3.402823466e38f ? quotient : 0.0f);
    const Lanes divisor = broadcast(a.packed.static_scale), offset = broadcast(a.packed.static_offset);
    for (size_t i = 0; i < count; i += kLanes) {
        const size_t left = lanes_left(count, i);
        const Lanes values = load_any(a.x.data, start + i, a.x.is_bf16, left);
        const Lanes exact = a.packed.is_static ? maximum(minimum(add(div(values, divisor), offset), broadcast(127.0f)),
                                                         broadcast(-128.0f))
                                               : mul(values, factor);
        store_int8(to + i, exact, left);
    }
    for (size_t i = count; i < length; ++i) to[i] = 0;
    *scale = a.packed.is_static ? a.packed.static_scale : largest / kLargest;
}

// See QuantisedRows.
QANAT_INLINE void sum_parts(const PackedView& packed, const int8_t* values, int32_t* sums) {
    const size_t length = packed.sum_length(), count = packed.row_length() / length;
    const int32_t factor = packed.kind == Kind::kInt4 ? -8 : 1;
    for (size_t part = 0; part < count; ++part) {
        int32_t total = 0;
        for (size_t i = 0; i < length; ++i) total += values[part * length + i];
        sums[part] = factor * total;
    }
}

static void quantise(const QuantiseArguments& a, size_t first_row, size_t last_row) {
    const size_t length = a.packed.segment_length, num_segments = a.packed.num_segments();
    for (size_t row = first_row; row < last_row; ++row) {
        int8_t* to = a.out.values + row * a.packed.row_length();
        const size_t start = a.x.start(row);
        for (size_t s = 0; s < num_segments; ++s) {
            const size_t left = a.packed.num_inputs - s * length;
            quantise_segment(a, start + s * length, left < length ? left : length, to + s * length,
                             a.out.scales + row * kSegments + s);
        }
        sum_parts(a.packed, to, a.out.sums + row * a.packed.num_sums());
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
