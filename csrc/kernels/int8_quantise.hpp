// Activations as int8. Each segment of a row has its own scale (rule R5), so that a rank that holds some of the segments
// has the bits of one that holds all; fixed ones come with the matrix.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"
#include "int8_product.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr float kLargest = 127.0f;
// Added to a number of at most 2^22, it leaves the nearest whole number (ties to even) in the low bits.
constexpr float kRounder = 12582912.0f;

// 16 whole numbers from -128 to 127 as bytes, with `bias` (0 or -128) exchanged in each.
QANAT_INLINE void store_int8(int8_t* to, Lanes x, int8_t bias) {
    const Bits shifted = bits_of(add(x, broadcast(kRounder)));
#if defined(QANAT_ISA_AVX512)
    const __m128i bytes = _mm_xor_si128(_mm512_cvtepi32_epi8(shifted.v), _mm_set1_epi8(bias));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
#elif defined(QANAT_ISA_AVX2)
    const __m256i low = _mm256_set1_epi32(0xff);
    const __m256i words = _mm256_packus_epi32(_mm256_and_si256(shifted.a, low), _mm256_and_si256(shifted.b, low));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_xor_si128(bytes, _mm_set1_epi8(bias)));
#else
    alignas(64) int32_t words[kLanes];
    __builtin_memcpy(words, &shifted, sizeof words);
    for (size_t i = 0; i < kLanes; ++i) to[i] = static_cast<int8_t>((static_cast<uint32_t>(words[i]) & 0xffu) ^ uint8_t(bias));
#endif
}

QANAT_INLINE void store_some_int8(int8_t* to, Lanes x, int8_t bias, size_t count) {
    alignas(16) int8_t full[kLanes];
    store_int8(full, x, bias);
    for (size_t i = 0; i < count; ++i) to[i] = full[i];
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

// One segment; values beyond the inputs are zero.
QANAT_INLINE void quantise_segment(const QuantiseArguments& a, size_t start, size_t count, int8_t* to, float* scale) {
    const size_t length = a.packed.segment_length;
    const int8_t bias = a.packed.kind == Kind::kInt8 ? kBias : int8_t(0);
    const float largest = peak_of(a.x, start, count);
    if (largest != largest) {
        *scale = largest;
        __builtin_memset(to, bias, length);
        return;
    }
    *scale = a.packed.is_static ? a.packed.static_scale : largest / kLargest;
    const float quotient = kLargest / largest;
    const Lanes factor = broadcast(quotient <= 3.402823466e38f ? quotient : 0.0f);
    const Lanes divisor = broadcast(a.packed.static_scale), offset = broadcast(a.packed.static_offset);
    for (size_t i = 0; i < count; i += kLanes) {
        const size_t left = lanes_left(count, i);
        const Lanes values = load_any(a.x.data, start + i, a.x.is_bf16, left);
        const Lanes exact = a.packed.is_static ? maximum(minimum(add(div(values, divisor), offset), broadcast(127.0f)),
                                                         broadcast(-128.0f))
                                               : mul(values, factor);
        if (left >= kLanes) store_int8(to + i, exact, bias);
        else store_some_int8(to + i, exact, bias, left);
    }
    for (size_t i = count; i < length; ++i) to[i] = bias;
}

// See QuantisedRows.
QANAT_INLINE void sum_cells(const PackedView& packed, const int8_t* values, int32_t* sums) {
    for (size_t i = 0; i < packed.num_sums(); ++i) {
        int32_t total = 0;
        for (size_t k = 0; k < packed.cell; ++k) total += values[i * packed.cell + k];
        sums[i] = -8 * total;
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
        sum_cells(a.packed, to, a.out.sums + row * a.packed.num_sums());
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
