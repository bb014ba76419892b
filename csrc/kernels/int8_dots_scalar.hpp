// Exact sums of int8 products, one at a time.
#pragma once

#include "../lanes/lanes.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr int kDotPanels = 1, kDotRows = 1, kSingleRowPanels = 1;

// The sums over a segment of each row with the 16 outputs of a panel, as fp32.
template <int kRows, int kPanels>
QANAT_INLINE void segment_dots(const int8_t* const* x, const int8_t* const* panels, size_t length, const int32_t*,
                               Lanes (*all_dots)[kRows]) {
    const int8_t* w = panels[0];
    Lanes* dots = all_dots[0];
    for (int r = 0; r < kRows; ++r) {
        int32_t sums[16] = {};
        for (size_t k = 0; k < length; k += 4)
            for (int output = 0; output < 16; ++output)
                for (int i = 0; i < 4; ++i) sums[output] += int32_t(x[r][k + i]) * int32_t(w[k * 16 + output * 4 + i]);
        for (int output = 0; output < 16; ++output) dots[r].v[output] = static_cast<float>(sums[output]);
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
