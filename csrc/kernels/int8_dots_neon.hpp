// Exact sums of int8 products with NEON: products as int16, added in pairs to int32.
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
    int32x4_t sums[kRows][8];  // of 2 outputs each, two for an output
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) sums[r][i] = vdupq_n_s32(0);
    for (size_t k = 0; k < length; k += 4) {
        __builtin_prefetch(w + k * 16 + kPrefetchBytes);
        int8x8_t inputs[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
            int32_t four;
            __builtin_memcpy(&four, x[r] + k, 4);
            inputs[r] = vreinterpret_s8_s32(vdup_n_s32(four));
        }
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
            const int8x8_t weights = vld1_s8(w + k * 16 + i * 8);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) sums[r][i] = vpadalq_s16(sums[r][i], vmull_s8(weights, inputs[r]));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
        dots[r] = {vcvtq_f32_s32(vpaddq_s32(sums[r][0], sums[r][1])), vcvtq_f32_s32(vpaddq_s32(sums[r][2], sums[r][3])),
                   vcvtq_f32_s32(vpaddq_s32(sums[r][4], sums[r][5])), vcvtq_f32_s32(vpaddq_s32(sums[r][6], sums[r][7]))};
}

}  // namespace QANAT_ISA
}  // namespace qanat
