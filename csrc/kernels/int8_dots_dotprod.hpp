// Exact sums of int8 products with NEON's dot product: four products of an output at once.
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
    int32x4_t sums[kRows][4];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sums[r][i] = vdupq_n_s32(0);
    for (size_t k = 0; k < length; k += 4) {
        __builtin_prefetch(w + k * 16 + kPrefetchBytes);
        int8x16_t weights[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) weights[i] = vld1q_s8(w + k * 16 + i * 16);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            int32_t four;
            __builtin_memcpy(&four, x[r] + k, 4);
            const int8x16_t inputs = vreinterpretq_s8_s32(vdupq_n_s32(four));
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) sums[r][i] = vdotq_s32(sums[r][i], weights[i], inputs);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
        dots[r] = {vcvtq_f32_s32(sums[r][0]), vcvtq_f32_s32(sums[r][1]), vcvtq_f32_s32(sums[r][2]),
                   vcvtq_f32_s32(sums[r][3])};
}

}  // namespace QANAT_ISA
}  // namespace qanat
