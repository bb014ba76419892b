// Int4 products of many rows with AMX. Two panels are unpacked once for all rows; a tile holds the inputs of one cell, whose
// sums are scaled and added as in int4.hpp: the same values in the same order.
#pragma once

#include "int4.hpp"
#include "tile_sums.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kGroupCells = 4;  // whose tiles are multiplied before their sums are scaled
constexpr size_t kMaxUnpackedInputs = 8192;
constexpr size_t kMinInt4TiledRows = 32;  // fewer rows share the unpacked weights as fast with VNNI

struct alignas(64) CellSums { int32_t of[kGroupCells][4][kTileRows][kLanes]; };

// Of a block of rows with two panels: the sum of the current segment, and the tree over the segments so far.
struct BlockParts { Lanes part[kBlockRows][2], low[kBlockRows][2], middle[kBlockRows][2], high[kBlockRows][2]; };

// One block of rows, at x, with two panels.
struct Int4Block {
    const QuantisedArguments& a;
    const int8_t* x;
    size_t stride, first_row, num_rows, panel, num_panels;
    bool is_plain;
    const int8_t* weights[2];  // unpacked
    const uint8_t* packed[2];  // for the scales
};

// A panel's weights as signed bytes [inputs / 4][16][4].
static void unpack_panel(const PackedView& packed, const uint8_t* from, int8_t* to) {
    const __m512i eights = _mm512_set1_epi8(8);
    const size_t num_segments = packed.num_segments(), segment_bytes = packed.int4_segment_bytes();
    for (size_t s = 0; s < num_segments; ++s, from += segment_bytes)
        for (size_t k = 0; k < packed.segment_length; k += 8, to += 128) {
            __builtin_prefetch(from + k * 8 + kPrefetchBytes);
            const BytesPair pair = unpack(from + k * 8);
            _mm512_store_si512(to, _mm512_sub_epi8(pair.low.v, eights));
            _mm512_store_si512(to + 64, _mm512_sub_epi8(pair.high.v, eights));
        }
}

// The sums of some cells, the first of which begins at this input of the rows.
template <bool kHasHigh>
static inline void multiply_cells(const Int4Block& block, size_t first_input, size_t count, CellSums& sums) {
    for (size_t c = 0; c < count; ++c) {
        const size_t k = first_input + c * kFullCell;
        _tile_zero(0);
        _tile_zero(1);
        _tile_loadd(4, block.x + k, block.stride);
        _tile_loadd(6, block.weights[0] + k * kPanelOutputs, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, block.weights[1] + k * kPanelOutputs, 64);
        _tile_dpbssd(1, 4, 7);
        _tile_stored(0, sums.of[c][0], 64);
        _tile_stored(1, sums.of[c][1], 64);
        if (!kHasHigh) continue;
        _tile_zero(2);
        _tile_zero(3);
        _tile_loadd(5, block.x + kTileRows * block.stride + k, block.stride);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
        _tile_stored(2, sums.of[c][2], 64);
        _tile_stored(3, sums.of[c][3], 64);
    }
}

// The next segment's sum for the tree ((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7)); returned is the whole tree after the last.
QANAT_INLINE Lanes joined(BlockParts& parts, size_t r, size_t p, size_t segment, Lanes sum) {
    Lanes &low = parts.low[r][p], &middle = parts.middle[r][p], &high = parts.high[r][p];
    switch (segment) {
        case 0: low = sum; break;
        case 1: low = add(low, sum); break;
        case 3: low = add(low, add(middle, sum)); break;
        case 4: high = sum; break;
        case 5: high = add(high, sum); break;
        case 7: return add(low, add(high, add(middle, sum)));
        default: middle = sum;
    }
    return sum;
}

static inline void store_totals(const Int4Block& block, size_t r, const Lanes* totals) {
    const size_t row = block.first_row + r;
    if (block.is_plain) return store_both(block.a, row, block.panel, totals[0], totals[1]);
    for (size_t p = 0; p < block.num_panels; ++p) store_row(block.a, totals[p], row, block.panel + p);
}

// Adds the sums of some cells of a segment to its part; after the last of them, the part to the tree.
static void add_cells(const Int4Block& block, const CellSums& sums, size_t segment, size_t first_cell, size_t count,
                      BlockParts& parts) {
    const PackedView& packed = block.a.packed;
    const bool is_first = first_cell == 0, is_last = first_cell + count == packed.num_cells();
    Lanes scales[kGroupCells][2];
    for (size_t c = 0; c < kGroupCells; ++c)
        for (size_t p = 0; p < 2; ++p) {
            const uint8_t* at = block.packed[p] + segment * packed.int4_segment_bytes() + packed.segment_length * 8;
            scales[c][p] = c < count ? load_any(at, (first_cell + c) * kPanelOutputs, packed.is_scale_bf16) : zero();
        }
    for (size_t r = 0; r < block.num_rows; ++r) {
        const Lanes row_scale = broadcast(block.a.x.scales[in_row(block.a, block.first_row + r) * kSegments + segment]);
        Lanes totals[2];
#pragma GCC unroll 2
        for (size_t p = 0; p < 2; ++p) {
            Lanes part = is_first ? zero() : parts.part[r][p];
#pragma GCC unroll 4
            for (size_t c = 0; c < kGroupCells; ++c) {
                if (c >= count) break;
                const __m512i dots = _mm512_load_si512(sums.of[c][r / kTileRows * 2 + p][r % kTileRows]);
                part = fma(Lanes{_mm512_cvtepi32_ps(dots)}, scales[c][p], part);
            }
            if (!is_last) parts.part[r][p] = part;
            else totals[p] = joined(parts, r, p, segment, mul(part, row_scale));
        }
        if (is_last && segment == kSegments - 1) store_totals(block, r, totals);
    }
}

template <bool kHasHigh>
static void int4_block(const Int4Block& block) {
    const PackedView& packed = block.a.packed;
    const size_t num_segments = packed.num_segments(), num_cells = packed.num_cells();
    BlockParts parts;
    CellSums sums;  // one, as two would leave the first-level cache no room
    for (size_t s = 0; s < num_segments; ++s)
        for (size_t cell = 0; cell < num_cells; cell += kGroupCells) {
            const size_t count = num_cells - cell < kGroupCells ? num_cells - cell : kGroupCells;
            multiply_cells<kHasHigh>(block, s * packed.segment_length + cell * kFullCell, count, sums);
            add_cells(block, sums, s, cell, count, parts);
        }
    // Segments that are not there count as zero.
    for (size_t s = num_segments; s < kSegments; ++s)
        for (size_t r = 0; r < block.num_rows; ++r) {
            const Lanes totals[2] = {joined(parts, r, 0, s, zero()), joined(parts, r, 1, s, zero())};
            if (s == kSegments - 1) store_totals(block, r, totals);
        }
}

// Rows that lie behind each other at x.
static void int4_tiled_rows(const QuantisedArguments& a, const int8_t* x, size_t first_row, size_t last_row, size_t first_panel,
                            size_t last_panel) {
    alignas(64) int8_t unpacked[2][kMaxUnpackedInputs * kPanelOutputs];
    const PackedView& packed = a.packed;
    const size_t stride = packed.row_length();
    size_t shaped = 0;
    for (size_t panel = first_panel; panel < last_panel; panel += 2) {
        const size_t num_panels = last_panel - panel < 2 ? 1 : 2;
        const uint8_t* from[2];
        for (size_t p = 0; p < 2; ++p) {
            from[p] = reinterpret_cast<const uint8_t*>(packed.panel(panel + (p < num_panels ? p : 0)));
            if (p < num_panels) unpack_panel(packed, from[p], unpacked[p]);
        }
        asm volatile("" : : : "memory");  // the compiler does not know that tiles are loaded from memory
        for (size_t row = first_row; row < last_row; row += kBlockRows) {
            const size_t count = last_row - row < kBlockRows ? last_row - row : kBlockRows;
            if (count != shaped) shape_tiles(shaped = count, kFullCell);
            const Int4Block block{a, x + (row - first_row) * stride, stride, row, count, panel, num_panels,
                                  is_plain(a, panel, last_panel), {unpacked[0], unpacked[num_panels - 1]}, {from[0], from[1]}};
            if (count > kTileRows) int4_block<true>(block);
            else int4_block<false>(block);
        }
    }
}

static void linear_int4_tiled(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                              size_t last_panel) {
    const bool is_tiled = last_row - first_row >= kMinInt4TiledRows && a.packed.cell == kFullCell &&
                          a.packed.row_length() <= kMaxUnpackedInputs;
    on_tiles_or(linear_int4, int4_tiled_rows, is_tiled, a, first_row, last_row, first_panel, last_panel);
}

}  // namespace QANAT_ISA
}  // namespace qanat
