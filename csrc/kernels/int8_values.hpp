// Numbers as int8 with a scale: what activations and the cache share.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr float kLargest = 127.0f;
// Added to a number of at most 2^22, it leaves the nearest whole number (ties to even) in the low bits.
constexpr float kRounder = 12582912.0f;
constexpr uint32_t kRounderBits = 0x4b400000;

// 16 whole numbers from -128 to 127 as bytes; returned are the bits of each, with kRounder added to it.
QANAT_INLINE Bits store_int8(int8_t* to, Lanes x) {
    const Bits shifted = bits_of(add(x, broadcast(kRounder)));
#if defined(QANAT_ISA_AVX512)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(shifted.v));
#elif defined(QANAT_ISA_AVX2)
    const __m256i low = _mm256_set1_epi32(0xff);
    const __m256i words = _mm256_packus_epi32(_mm256_and_si256(shifted.a, low), _mm256_and_si256(shifted.b, low));
    const __m256i ordered = _mm256_permute4x64_epi64(words, 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
#else
    alignas(64) uint32_t words[kLanes];
    __builtin_memcpy(words, &shifted, sizeof words);
    for (size_t i = 0; i < kLanes; ++i) to[i] = static_cast<int8_t>(words[i] & 0xffu);
#endif
    return shifted;
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

// What numbers are multiplied by before they are rounded: zero where they are too small for a factor.
QANAT_INLINE float factor_of(float largest) {
    const float quotient = kLargest / largest;
    return quotient <= 3.402823466e38f ? quotient : 0.0f;
}

}  // namespace QANAT_ISA
}  // namespace qanat
