// Products with packed matrices. One output's sum is eight chains of fused multiply-adds, one for each segment of the
// inputs and each with ascending inputs, joined by a tree: ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)). How many rows and
// segments are computed at once changes none of the chains, so one row and a thousand give the same bits (R1, R2), and
// 1, 2, 4 or 8 ranks can each hold whole branches of the tree (R12).
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

QANAT_INLINE Lanes load_weights(const float* p) { return load(p); }
QANAT_INLINE Lanes load_weights(const uint16_t* p) { return load_bf16(p); }

// The sums of some segments for some rows; `step` is the distance of a segment's weights from those of its next input.
// The inner loops are unrolled so that sums stay in registers.
template <class Weight, int kRows, int kSegs>
static inline void segment_sums(const float* const* x, const Weight* w, size_t step, size_t length,
                                Lanes (*sums)[kManyRows]) {
    Lanes part[kRows][kSegs];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int s = 0; s < kSegs; ++s) part[r][s] = zero();
    for (size_t k = 0; k < length; ++k) {
        if (kSegs == kMaxInterleaved) __builtin_prefetch(w + k * step + 1024);
#pragma GCC unroll 8
        for (int s = 0; s < kSegs; ++s) {
            const Lanes weights = load_weights(w + k * step + s * kLanes);
#pragma GCC unroll 8
            for (int r = 0; r < kRows; ++r)
                part[r][s] = fma(broadcast(x[r][s * length + k]), weights, part[r][s]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int s = 0; s < kSegs; ++s) sums[s][r] = part[r][s];
}

template <class Weight, int kRows, int kSegs>
static void panel_rows(const LinearArguments& a, const size_t* rows, size_t panel) {
    const size_t length = a.packed.segment_length, num_segments = a.packed.num_segments();
    const size_t step = a.packed.num_interleaved() * kLanes;
    const Weight* w = static_cast<const Weight*>(a.packed.data) + panel * num_segments * length * kLanes;
    const float* x[kManyRows];
    for (int r = 0; r < kRows; ++r) x[r] = a.x + (a.in_rows ? a.in_rows[rows[r]] : rows[r]) * a.packed.row_length();
    Lanes sums[kSegments][kManyRows];
    for (size_t segment = 0; segment < num_segments; segment += kSegs) {
        const size_t beside = segment * kLanes % step;
        const float* part[kManyRows];
        for (int r = 0; r < kRows; ++r) part[r] = x[r] + segment * length;
        segment_sums<Weight, kRows, kSegs>(part, w + (segment * kLanes - beside) * length + beside, step, length,
                                           sums + segment);
    }
    for (size_t segment = num_segments; segment < kSegments; ++segment)
        for (int r = 0; r < kRows; ++r) sums[segment][r] = zero();
    const size_t first = panel * kPanelOutputs;
    const size_t count = lanes_left(a.packed.num_outputs, first);
    for (int r = 0; r < kRows; ++r) {
        const Lanes low = add(add(sums[0][r], sums[1][r]), add(sums[2][r], sums[3][r]));
        const Lanes high = add(add(sums[4][r], sums[5][r]), add(sums[6][r], sums[7][r]));
        const size_t out_row = a.out_rows ? static_cast<size_t>(a.out_rows[rows[r]]) : rows[r];
        store_any(a.out, out_row * a.out_stride + first, a.is_out_bf16, add(low, high), count);
    }
}

// Chooses the code for this number of rows: few rows take many segments at once, to hide the latency of a chain.
template <class Weight, int kRows>
static inline void panel_of(const LinearArguments& a, const size_t* rows, size_t num_rows, size_t panel) {
    if constexpr (kRows > 0) {
        constexpr int kSegs = kRows <= kFewRows ? kFewSegments : kManySegments;
        if (num_rows != static_cast<size_t>(kRows)) panel_of<Weight, kRows - 1>(a, rows, num_rows, panel);
        else if (a.packed.num_interleaved() < kSegs) panel_rows<Weight, kRows, 1>(a, rows, panel);
        else panel_rows<Weight, kRows, kSegs>(a, rows, panel);
    }
}

template <class Weight>
static void linear_of(const LinearArguments& a, size_t first_row, size_t last_row, size_t first_panel, size_t last_panel) {
    for (size_t panel = first_panel; panel < last_panel; ++panel)
        for (size_t row = first_row; row < last_row; row += kManyRows) {
            size_t rows[kManyRows], count = 0;
            for (; count < static_cast<size_t>(kManyRows) && row + count < last_row; ++count) rows[count] = row + count;
            panel_of<Weight, kManyRows>(a, rows, count, panel);
        }
}

static void linear(const LinearArguments& a, size_t first_row, size_t last_row, size_t first_panel, size_t last_panel) {
    if (a.packed.is_bf16()) linear_of<uint16_t>(a, first_row, last_row, first_panel, last_panel);
    else linear_of<float>(a, first_row, last_row, first_panel, last_panel);
}

template <class Weight>
static void pack_of(const PackArguments& a, size_t first_panel, size_t last_panel) {
    const size_t length = a.packed.segment_length;
    const size_t num_segments = a.packed.num_segments(), interleaved = a.packed.num_interleaved();
    const Weight* source = static_cast<const Weight*>(a.source);
    Weight* out = static_cast<Weight*>(a.data) + first_panel * num_segments * length * kPanelOutputs;
    for (size_t panel = first_panel; panel < last_panel; ++panel)
        for (size_t group = 0; group < num_segments; group += interleaved)
            for (size_t k = 0; k < length; ++k)
                for (size_t s = 0; s < interleaved; ++s)
                    for (size_t lane = 0; lane < kPanelOutputs; ++lane) {
                        const size_t output = panel * kPanelOutputs + lane;
                        const size_t input = (group + s) * length + k;
                        const bool is_inside = output < a.packed.num_outputs && input < a.packed.num_inputs;
                        *out++ = is_inside ? source[output * a.source_stride + input] : Weight(0);
                    }
}

static void pack(const PackArguments& a, size_t first_panel, size_t last_panel) {
    if (a.packed.is_bf16()) pack_of<uint16_t>(a, first_panel, last_panel);
    else pack_of<float>(a, first_panel, last_panel);
}

// Rows in fp32 with zeros up to the stride: what `linear` reads.
static void widen(const Rows& x, size_t size, float* out, size_t out_stride, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const size_t start = x.start(row);
        float* to = out + row * out_stride;
        for (size_t i = 0; i < size; i += kLanes) {
            const size_t count = lanes_left(size, i);
            store_any(to, i, false, load_any(x.data, start + i, x.is_bf16, count), count);
        }
        for (size_t i = size; i < out_stride; ++i) to[i] = 0.0f;
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
