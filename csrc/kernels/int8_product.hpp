// Products of int8 activations with int8 matrices. Each segment's sum is exact, so its order is free; what comes after it
// is fp32 and fixed: times the activations' scale, times the output's, joined by the tree of linear.hpp, plus the bias.
//
// The file of an instruction set gives segment_dots<rows, panels>, kDotRows and kDotPanels, its block of rows and panels, and
// kSingleRowPanels, those that one row alone takes together: from as many places memory is read fastest.
#pragma once

#include "arguments.hpp"
#include "int8_pack.hpp"
#if defined(QANAT_ISA_VNNI)
#include "int8_dots_vnni.hpp"
#elif defined(QANAT_ISA_AVX512)
#include "int8_dots_avx512.hpp"
#elif defined(QANAT_ISA_AVX2)
#include "int8_dots_avx2.hpp"
#elif defined(QANAT_ISA_I8MM)
#include "int8_dots_i8mm.hpp"
#elif defined(QANAT_ISA_DOTPROD)
#include "int8_dots_dotprod.hpp"
#elif defined(QANAT_ISA_NEON)
#include "int8_dots_neon.hpp"
#else
#include "int8_dots_scalar.hpp"
#endif

namespace qanat {
namespace QANAT_ISA {

QANAT_INLINE size_t in_row(const QuantisedArguments& a, size_t row) {
    return a.in_rows ? static_cast<size_t>(a.in_rows[row]) : row;
}

// One row's results of a panel from the sum of its segments.
QANAT_INLINE void store_row(const QuantisedArguments& a, Lanes total, size_t row, size_t panel) {
    if (a.packed.has_bias) total = add(total, load(scales_of(a.packed, a.packed.panel(panel)) + kPanelOutputs));
    const size_t first = panel * kPanelOutputs;
    const size_t out_row = a.out_rows ? static_cast<size_t>(a.out_rows[row]) : row;
    store_any(a.out, out_row * a.out_stride + first, a.is_out_bf16, total, lanes_left(a.packed.num_outputs, first));
}

// The same from its segments' scaled sums, `stride` apart.
QANAT_INLINE void finish_row(const QuantisedArguments& a, const Lanes* parts, size_t stride, size_t row, size_t panel) {
    const Lanes low = add(add(parts[0], parts[stride]), add(parts[2 * stride], parts[3 * stride]));
    const Lanes high = add(add(parts[4 * stride], parts[5 * stride]), add(parts[6 * stride], parts[7 * stride]));
    store_row(a, add(low, high), row, panel);
}

template <int kRows, int kPanels>
static void int8_block(const QuantisedArguments& a, size_t first_row, size_t panel) {
    const PackedView& packed = a.packed;
    const size_t length = packed.segment_length, num_segments = packed.num_segments();
    const int8_t* x[kRows];
    const float* row_scales[kRows];
    int32_t x_sums[kSegments][kRows];
    for (int r = 0; r < kRows; ++r) {
        const size_t row = in_row(a, first_row + r);
        x[r] = a.x.values + row * packed.row_length();
        row_scales[r] = a.x.scales + row * kSegments;
        for (size_t s = 0; s < num_segments; ++s) x_sums[s][r] = a.x.sums[row * kSegments + s];
    }
    const int8_t* w[kPanels];
    Lanes scales[kPanels];
    for (int p = 0; p < kPanels; ++p) {
        w[p] = reinterpret_cast<const int8_t*>(packed.panel(panel + p));
        scales[p] = load(scales_of(packed, packed.panel(panel + p)));
    }
    Lanes parts[kSegments][kPanels][kRows];
    for (size_t s = 0; s < num_segments; ++s) {
        segment_dots<kRows, kPanels>(x, w, length, x_sums[s], parts[s]);
        for (int r = 0; r < kRows; ++r) {
            const Lanes row_scale = broadcast(row_scales[r][s]);
            for (int p = 0; p < kPanels; ++p) parts[s][p][r] = mul(mul(parts[s][p][r], row_scale), scales[p]);
            x[r] += length;
        }
        for (int p = 0; p < kPanels; ++p) w[p] += length * kPanelOutputs;
    }
    for (size_t s = num_segments; s < kSegments; ++s)
        for (int p = 0; p < kPanels; ++p)
            for (int r = 0; r < kRows; ++r) parts[s][p][r] = zero();
    for (int p = 0; p < kPanels; ++p)
        for (int r = 0; r < kRows; ++r) finish_row(a, &parts[0][p][r], kPanels * kRows, first_row + r, panel + p);
}

// Chooses the code for this number of rows.
template <int kRows, int kPanels>
static inline void int8_rows(const QuantisedArguments& a, size_t row, size_t num_rows, size_t panel) {
    if constexpr (kRows > 0) {
        if (num_rows == static_cast<size_t>(kRows)) int8_block<kRows, kPanels>(a, row, panel);
        else int8_rows<kRows - 1, kPanels>(a, row, num_rows, panel);
    }
}

template <int kPanels>
static void int8_panels(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t panel) {
    for (size_t row = first_row; row < last_row; row += kDotRows) {
        const size_t left = last_row - row;
        int8_rows<kDotRows, kPanels>(a, row, left < size_t(kDotRows) ? left : size_t(kDotRows), panel);
    }
}

static void linear_int8(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                        size_t last_panel) {
    size_t panel = first_panel;
    if (last_row - first_row == 1)
        for (; panel + kSingleRowPanels <= last_panel; panel += kSingleRowPanels)
            int8_block<1, kSingleRowPanels>(a, first_row, panel);
    for (; panel + kDotPanels <= last_panel; panel += kDotPanels) int8_panels<kDotPanels>(a, first_row, last_row, panel);
    for (; panel < last_panel; ++panel) int8_panels<1>(a, first_row, last_row, panel);
}

}  // namespace QANAT_ISA
}  // namespace qanat
