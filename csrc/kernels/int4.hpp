// Products of int4 matrices with int8 rows. The inputs are cut into cells that lie in one segment and one group, so that
// a cell has one scale for each output:
//
//   dot_cell = exact integer sum,  sum_s = fma(float(dot_cell), scale, sum_s) over the cells of a segment, ascending
//   out = tree of (sum_s * the row's scale in segment s)
//
// However many rows share the unpacked weights, each has the same sums (rules R1, R2, R12).
#pragma once

#include "../lanes/nibbles.hpp"
#include "arguments.hpp"
#include "prefetch.hpp"

namespace qanat {
namespace QANAT_ISA {

// Adds 8 * kSteps inputs, from byte `at` of the rows on, to the sums of each row.
template <int kRows, int kSteps>
QANAT_INLINE void add_steps(const uint8_t* w, const int8_t* const* x, size_t at, Bits* dots) {
    Bytes weights[2 * kSteps];
#pragma GCC unroll 4
    for (int i = 0; i < kSteps; ++i) {
        __builtin_prefetch(w + i * 64 + kPrefetchBytes);
        const BytesPair pair = unpack(w + i * 64);
        weights[2 * i] = pair.low;
        weights[2 * i + 1] = pair.high;
    }
    Dots sums[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = start_dots(dots[r]);
    if (kHasRegistersForSums) {
#pragma GCC unroll 8
        for (int i = 0; i < 2 * kSteps; ++i)
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r) sums[r] = add_dots(sums[r], weights[i], four_bytes(x[r] + at + i * 4));
    } else {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
            for (int i = 0; i < 2 * kSteps; ++i) sums[r] = add_dots(sums[r], weights[i], four_bytes(x[r] + at + i * 4));
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) dots[r] = end_dots(sums[r]);
}

constexpr size_t kFullCell = kDotsInputs;  // the size of a cell that has code of its own

template <int kRows, bool kIsFull>
QANAT_INLINE void add_cell(const uint8_t* w, const int8_t* const* x, size_t at, size_t cell, Bits* dots) {
    if (kIsFull) return add_steps<kRows, 4>(w, x, at, dots);
    size_t done = 0;
    for (; done + kDotsInputs <= cell; done += kDotsInputs) add_steps<kRows, 4>(w + done * 8, x, at + done, dots);
    for (; done < cell; done += 8) add_steps<kRows, 1>(w + done * 8, x, at + done, dots);
}

// The sums of one segment, without the rows' scales.
template <int kRows, bool kIsFull, bool kIsBf16>
QANAT_INLINE void int4_segment(const PackedView& packed, const uint8_t* w, const int8_t* const* x,
                               const int32_t* const* offsets, size_t segment, Lanes* sums) {
    const size_t cell = kIsFull ? kFullCell : packed.cell, num_cells = packed.num_cells();
    const uint8_t* scales = w + packed.segment_length * 8;
    Lanes part[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) part[r] = zero();
    for (size_t i = 0; i < num_cells; ++i) {
        Bits dots[kRows];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) dots[r] = broadcast_bits(offsets[r][segment * num_cells + i]);
        add_cell<kRows, kIsFull>(w + i * cell * 8, x, segment * packed.segment_length + i * cell, cell, dots);
        const Lanes scale = load_any(scales, i * kPanelOutputs, kIsBf16);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) part[r] = fma(to_lanes(dots[r]), scale, part[r]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r] = part[r];
}

template <int kRows, bool kIsFull, bool kIsBf16>
static void int4_panel(const QuantisedArguments& a, size_t first_row, size_t panel) {
    const PackedView& packed = a.packed;
    const size_t num_segments = packed.num_segments();
    const uint8_t* w = reinterpret_cast<const uint8_t*>(packed.panel(panel));
    const int8_t* x[kRows];
    const int32_t* offsets[kRows];
    const float* x_scales[kRows];
    for (int r = 0; r < kRows; ++r) {
        const size_t row = a.in_rows ? static_cast<size_t>(a.in_rows[first_row + r]) : first_row + r;
        x[r] = a.x.values + row * packed.row_length();
        offsets[r] = a.x.sums + row * packed.num_sums();
        x_scales[r] = a.x.scales + row * kSegments;
    }
    Lanes sums[kSegments][kRows];
    for (size_t s = 0; s < kSegments; ++s)
        for (int r = 0; r < kRows; ++r) sums[s][r] = zero();
    for (size_t s = 0; s < num_segments; ++s, w += packed.int4_segment_bytes()) {
        int4_segment<kRows, kIsFull, kIsBf16>(packed, w, x, offsets, s, sums[s]);
        for (int r = 0; r < kRows; ++r) sums[s][r] = mul(sums[s][r], broadcast(x_scales[r][s]));
    }
    const size_t first = panel * kPanelOutputs, count = lanes_left(packed.num_outputs, first);
    for (int r = 0; r < kRows; ++r) {
        const Lanes low = add(add(sums[0][r], sums[1][r]), add(sums[2][r], sums[3][r]));
        const Lanes high = add(add(sums[4][r], sums[5][r]), add(sums[6][r], sums[7][r]));
        const size_t out_row = a.out_rows ? static_cast<size_t>(a.out_rows[first_row + r]) : first_row + r;
        store_any(a.out, out_row * a.out_stride + first, a.is_out_bf16, add(low, high), count);
    }
}

template <int kRows, bool kIsFull, bool kIsBf16>
static inline void int4_rows(const QuantisedArguments& a, size_t row, size_t num_rows, size_t panel) {
    if constexpr (kRows > 0) {
        if (num_rows == static_cast<size_t>(kRows)) int4_panel<kRows, kIsFull, kIsBf16>(a, row, panel);
        else int4_rows<kRows - 1, kIsFull, kIsBf16>(a, row, num_rows, panel);
    }
}

template <bool kIsFull, bool kIsBf16>
static void int4_linear_of(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                           size_t last_panel) {
    for (size_t panel = first_panel; panel < last_panel; ++panel)
        for (size_t row = first_row; row < last_row; row += kInt4Rows) {
            const size_t left = last_row - row, most = kInt4Rows;
            int4_rows<kInt4Rows, kIsFull, kIsBf16>(a, row, left < most ? left : most, panel);
        }
}

static void linear_int4(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                        size_t last_panel) {
    const bool is_full = a.packed.cell == kFullCell, is_bf16 = a.packed.is_scale_bf16;
    if (is_full && is_bf16) int4_linear_of<true, true>(a, first_row, last_row, first_panel, last_panel);
    else if (is_full) int4_linear_of<true, false>(a, first_row, last_row, first_panel, last_panel);
    else if (is_bf16) int4_linear_of<false, true>(a, first_row, last_row, first_panel, last_panel);
    else int4_linear_of<false, false>(a, first_row, last_row, first_panel, last_panel);
}

}  // namespace QANAT_ISA
}  // namespace qanat
