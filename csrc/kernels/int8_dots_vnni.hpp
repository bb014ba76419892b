// Exact sums of int8 products with VNNI, whose instruction multiplies unsigned bytes with signed ones: 128 is added to each
// weight on the way, and 128 times the sum of the activations is taken off beforehand.
#pragma once

#include "../lanes/lanes.hpp"
#include "prefetch.hpp"

namespace qanat {
namespace QANAT_ISA {

// Plain register types: the compiler keeps arrays of them in registers, and those of structures it does not.
#if defined(QANAT_ISA_AVX512)
using Words = __m512i;  // 16 int32, one for each output of a panel
constexpr int kParts = 1, kDotRows = 12, kDotPanels = 2;
QANAT_INLINE Words load_words(const void* p) { return _mm512_loadu_si512(p); }
QANAT_INLINE Words exchange(Words x, Words y) { return _mm512_xor_si512(x, y); }
QANAT_INLINE Words same_words(int32_t x) { return _mm512_set1_epi32(x); }
// Written out, as compilers copy the sums to and fro around their own function for it.
QANAT_INLINE Words dot_words(Words sums, Words w, Words x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(w), "v"(x));
    return sums;
}
QANAT_INLINE Lanes as_floats(const Words* x) { return {_mm512_cvtepi32_ps(x[0])}; }
#else
using Words = __m256i;  // 8 int32, one for each output of half a panel
constexpr int kParts = 2, kDotRows = 6, kDotPanels = 1;
QANAT_INLINE Words load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
QANAT_INLINE Words exchange(Words x, Words y) { return _mm256_xor_si256(x, y); }
QANAT_INLINE Words same_words(int32_t x) { return _mm256_set1_epi32(x); }
QANAT_INLINE Words dot_words(Words sums, Words w, Words x) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(w), "x"(x));
    return sums;
}
QANAT_INLINE Lanes as_floats(const Words* x) { return {_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])}; }
#endif
constexpr size_t kWordBytes = sizeof(Words);
constexpr int kSingleRowPanels = 4;

// The sums over a segment of each row with the outputs of each panel, as fp32; `x_sums` of each row's own values.
template <int kRows, int kPanels>
QANAT_INLINE void segment_dots(const int8_t* const* x, const int8_t* const* w, size_t length, const int32_t* x_sums,
                               Lanes (*dots)[kRows]) {
    constexpr int kAll = kPanels * kParts;
    const Words top_bits = same_words(static_cast<int32_t>(0x80808080u));
    Words totals[kRows][kAll];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < kAll; ++i) totals[r][i] = same_words(-128 * x_sums[r]);
    size_t k = 0;
    do {  // a segment is never empty
        Words weights[kAll];
#pragma GCC unroll 4
        for (int i = 0; i < kAll; ++i) {
            const int8_t* from = w[i / kParts] + k * 16 + i % kParts * kWordBytes;
            weights[i] = exchange(load_words(from), top_bits);
            __builtin_prefetch(from + kPrefetchBytes);
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
            int32_t four;
            __builtin_memcpy(&four, x[r] + k, 4);
            const Words inputs = same_words(four);
#pragma GCC unroll 4
            for (int i = 0; i < kAll; ++i) totals[r][i] = dot_words(totals[r][i], weights[i], inputs);
        }
        k += 4;
    } while (k < length);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) dots[p][r] = as_floats(&totals[r][p * kParts]);
}

}  // namespace QANAT_ISA
}  // namespace qanat
