// Products of int8 activations with int8 matrices. Each segment's sum is exact, so its order is free; what comes after it
// is fp32 and fixed: times the activations' scale, times the output's, joined by the tree of linear.hpp, plus the bias.
#pragma once

#include "arguments.hpp"
#include "int8_pack.hpp"
#if defined(QANAT_ISA_AVX512)
#include "int8_dots_avx512.hpp"
#elif defined(QANAT_ISA_AVX2)
#include "int8_dots_avx2.hpp"
#elif defined(QANAT_ISA_NEON)
#include "int8_dots_neon.hpp"
#else
#include "int8_dots_scalar.hpp"
#endif

namespace qanat {
namespace QANAT_ISA {

template <int kRows>
static void int8_panel_rows(const QuantisedArguments& a, size_t first_row, size_t panel) {
    const PackedView& packed = a.packed;
    const size_t length = packed.segment_length, num_segments = packed.num_segments();
    const int8_t* x[kRows];
    const float* row_scales[kRows];
    for (int r = 0; r < kRows; ++r) {
        const size_t row = a.in_rows ? static_cast<size_t>(a.in_rows[first_row + r]) : first_row + r;
        x[r] = a.x.values + row * packed.row_length();
        row_scales[r] = a.x.scales + row * kSegments;
    }
    const char* data = packed.panel(panel);
    const int8_t* w = reinterpret_cast<const int8_t*>(data);
    const float* scales = scales_of(packed, data);
    const Lanes scale = load(scales);
    Lanes parts[kSegments][kRows];
    for (size_t s = 0; s < kSegments; ++s) {
        if (s >= num_segments) {
            for (int r = 0; r < kRows; ++r) parts[s][r] = zero();
            continue;
        }
        segment_dots<kRows>(x, w, length, parts[s]);
        for (int r = 0; r < kRows; ++r) {
            parts[s][r] = mul(mul(parts[s][r], broadcast(row_scales[r][s])), scale);
            x[r] += length;
        }
        w += length * kPanelOutputs;
    }
    const size_t first = panel * kPanelOutputs;
    for (int r = 0; r < kRows; ++r) {
        const Lanes low = add(add(parts[0][r], parts[1][r]), add(parts[2][r], parts[3][r]));
        const Lanes high = add(add(parts[4][r], parts[5][r]), add(parts[6][r], parts[7][r]));
        Lanes total = add(low, high);
        if (packed.has_bias) total = add(total, load(scales + kPanelOutputs));
        const size_t row = a.out_rows ? static_cast<size_t>(a.out_rows[first_row + r]) : first_row + r;
        store_any(a.out, row * a.out_stride + first, a.is_out_bf16, total, lanes_left(packed.num_outputs, first));
    }
}

template <int kRows>
static inline void int8_panel_of(const QuantisedArguments& a, size_t row, size_t num_rows, size_t panel) {
    if constexpr (kRows > 0) {
        if (num_rows == static_cast<size_t>(kRows)) int8_panel_rows<kRows>(a, row, panel);
        else int8_panel_of<kRows - 1>(a, row, num_rows, panel);
    }
}

static void linear_int8(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                        size_t last_panel) {
    for (size_t panel = first_panel; panel < last_panel; ++panel)
        for (size_t row = first_row; row < last_row; row += kDotRows) {
            const size_t left = last_row - row;
            int8_panel_of<kDotRows>(a, row, left < size_t(kDotRows) ? left : size_t(kDotRows), panel);
        }
}

}  // namespace QANAT_ISA
}  // namespace qanat
