// Exact sums of int8 products with AVX-512 (BW): both sides widened to int16, whose products are added in pairs as int32.
#pragma once

#include "../lanes/lanes.hpp"
#include "prefetch.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr int kDotPanels = 1, kDotRows = 6, kSingleRowPanels = 1;

// The sums over a segment of each row with the 16 outputs of a panel, as fp32.
template <int kRows, int kPanels>
QANAT_INLINE void segment_dots(const int8_t* const* x, const int8_t* const* panels, size_t length, const int32_t*,
                               Lanes (*all_dots)[kRows]) {
    const int8_t* w = panels[0];
    Lanes* dots = all_dots[0];
    __m512i sums[kRows][2];  // of 8 outputs each, two for an output
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm512_setzero_si512();
    for (size_t k = 0; k < length; k += 4) {
        __builtin_prefetch(w + k * 16 + kPrefetchBytes);
        const __m256i* at = reinterpret_cast<const __m256i*>(w + k * 16);
        const __m512i low = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at));
        const __m512i high = _mm512_cvtepi8_epi16(_mm256_loadu_si256(at + 1));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            int32_t four;
            __builtin_memcpy(&four, x[r] + k, 4);
            const __m512i inputs = _mm512_cvtepi8_epi16(_mm256_set1_epi32(four));
            sums[r][0] = _mm512_add_epi32(sums[r][0], _mm512_madd_epi16(low, inputs));
            sums[r][1] = _mm512_add_epi32(sums[r][1], _mm512_madd_epi16(high, inputs));
        }
    }
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        const __m512i first = _mm512_permutex2var_epi32(sums[r][0], even, sums[r][1]);
        const __m512i second = _mm512_permutex2var_epi32(sums[r][0], odd, sums[r][1]);
        dots[r] = {_mm512_cvtepi32_ps(_mm512_add_epi32(first, second))};
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
