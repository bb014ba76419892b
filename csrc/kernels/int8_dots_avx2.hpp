// Exact sums of int8 products with AVX2: both sides widened to int16, whose products are added in pairs as int32. The
// instruction for unsigned times signed bytes would be no faster here: it saturates, so the sign has to be moved from one
// side to the other each time, which fails for -128.
#pragma once

#include "../lanes/lanes.hpp"
#include "prefetch.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr int kDotPanels = 1, kDotRows = 2, kSingleRowPanels = 1;

// The sums over a segment of each row with the 16 outputs of a panel, as fp32.
template <int kRows, int kPanels>
QANAT_INLINE void segment_dots(const int8_t* const* x, const int8_t* const* panels, size_t length, const int32_t*,
                               Lanes (*all_dots)[kRows]) {
    const int8_t* w = panels[0];
    Lanes* dots = all_dots[0];
    __m256i sums[kRows][4];  // of 4 outputs each, two for an output
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sums[r][i] = _mm256_setzero_si256();
    for (size_t k = 0; k < length; k += 4) {
        __builtin_prefetch(w + k * 16 + kPrefetchBytes);
        __m256i inputs[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            int32_t four;
            __builtin_memcpy(&four, x[r] + k, 4);
            inputs[r] = _mm256_cvtepi8_epi16(_mm_set1_epi32(four));
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m128i* at = reinterpret_cast<const __m128i*>(w + k * 16 + i * 16);
            const __m256i weights = _mm256_cvtepi8_epi16(_mm_loadu_si128(at));
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r)
                sums[r][i] = _mm256_add_epi32(sums[r][i], _mm256_madd_epi16(weights, inputs[r]));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        const __m256i low = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[r][0], sums[r][1]), 0xd8);
        const __m256i high = _mm256_permute4x64_epi64(_mm256_hadd_epi32(sums[r][2], sums[r][3]), 0xd8);
        dots[r] = {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
