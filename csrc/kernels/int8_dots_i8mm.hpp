// Exact sums of int8 products with NEON's matrix instruction: eight inputs of two rows with those of two outputs at once.
#pragma once

#include "../lanes/lanes.hpp"
#include "prefetch.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr int kDotPanels = 1, kDotRows = 4, kSingleRowPanels = 1;

// Eight inputs of two rows; of the last row twice where the number of rows is odd.
template <int kRows>
QANAT_INLINE int8x16_t two_rows(const int8_t* const* x, int pair, size_t k, bool is_half) {
    const int8_t *upper = x[2 * pair], *lower = x[2 * pair + 1 < kRows ? 2 * pair + 1 : 2 * pair];
    if (!is_half) return vcombine_s8(vld1_s8(upper + k), vld1_s8(lower + k));
    int64_t four[2] = {};
    __builtin_memcpy(&four[0], upper + k, 4);
    __builtin_memcpy(&four[1], lower + k, 4);
    return vreinterpretq_s8_s64(vld1q_s64(four));
}

// Adds eight inputs, or the last four of a segment.
template <int kRows, int kPairs>
QANAT_INLINE void add_inputs(const int8_t* const* x, const int8_t* w, size_t k, bool is_half, int32x4_t (*sums)[8]) {
    int8x16_t inputs[kPairs];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) inputs[p] = two_rows<kRows>(x, p, k, is_half);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // four outputs: inputs 0..3 of each, then 4..7
        const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(w + k * 16 + i * 16));
        const int32x4_t second = is_half ? vdupq_n_s32(0) : vreinterpretq_s32_s8(vld1q_s8(w + k * 16 + 64 + i * 16));
        const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(first, second));
        const int8x16_t high = vreinterpretq_s8_s32(vzip2q_s32(first, second));
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
            sums[p][2 * i] = vmmlaq_s32(sums[p][2 * i], inputs[p], low);
            sums[p][2 * i + 1] = vmmlaq_s32(sums[p][2 * i + 1], inputs[p], high);
        }
    }
}

// The sums over a segment of each row with the 16 outputs of a panel, as fp32.
template <int kRows, int kPanels>
QANAT_INLINE void segment_dots(const int8_t* const* x, const int8_t* const* panels, size_t length, const int32_t*,
                               Lanes (*all_dots)[kRows]) {
    constexpr int kPairs = (kRows + 1) / 2;
    const int8_t* w = panels[0];
    int32x4_t sums[kPairs][8];  // upper row: two outputs, lower row: the same
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p)
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) sums[p][i] = vdupq_n_s32(0);
    size_t k = 0;
    for (; k + 8 <= length; k += 8) {
        __builtin_prefetch(w + k * 16 + kPrefetchBytes);
        add_inputs<kRows, kPairs>(x, w, k, false, sums);
    }
    if (k < length) add_inputs<kRows, kPairs>(x, w, k, true, sums);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
        float32x4_t found[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const int64x2_t first = vreinterpretq_s64_s32(sums[r / 2][2 * i]);
            const int64x2_t second = vreinterpretq_s64_s32(sums[r / 2][2 * i + 1]);
            const int64x2_t own = r % 2 ? vzip2q_s64(first, second) : vzip1q_s64(first, second);
            found[i] = vcvtq_f32_s32(vreinterpretq_s32_s64(own));
        }
        all_dots[0][r] = {found[0], found[1], found[2], found[3]};
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
