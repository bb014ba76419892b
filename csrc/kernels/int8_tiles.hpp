// Int8 products of many rows with AMX: tiles of 16 rows of activations times 16 outputs. The packed layout is that of a
// weight tile. Two by two tiles of sums are computed at once, so that each tile that is loaded is used twice.
#pragma once

#include "int8_product.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kTileRows = 16, kBlockRows = 32, kTileInputs = 64;
// With fewer rows the weights come from memory no faster than VNNI multiplies them.
constexpr size_t kMinTiledRows = 8;
constexpr size_t kMaxGatheredBytes = size_t(1) << 17;

struct alignas(64) TileShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Tiles 0 to 3 are sums (of the low rows with both panels, then of the high ones), 4 and 5 activations, 6 and 7 weights.
static void shape_tiles(size_t num_rows) {
    const uint8_t low = static_cast<uint8_t>(num_rows < kTileRows ? num_rows : kTileRows);
    const uint8_t high = static_cast<uint8_t>(num_rows > kTileRows ? num_rows - kTileRows : kTileRows);
    const uint8_t rows[8] = {low, low, high, high, low, high, 16, 16};
    TileShapes shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; ++i) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = rows[i];
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes));
}

// What of the weights is asked for while a block of rows is multiplied: its share of the panels that come next, so that
// memory is read all the time, however many blocks the panels serve.
struct Ahead {
    const char* at[2];
    size_t tile_lines, row_lines;  // of either panel, while a tile of it is multiplied, and while a row's sums are scaled
    QANAT_MEMBER void fetch(size_t num_lines) {
        for (size_t i = 0; i < num_lines; ++i) {
            __builtin_prefetch(at[0] + i * 64, 0, 2);
            __builtin_prefetch(at[1] + i * 64, 0, 2);
        }
        at[0] += num_lines * 64;
        at[1] += num_lines * 64;
    }
};

// Rows of activations, `stride` bytes apart, times a segment of two panels; sums [2 tiles of rows][2 panels][16][16].
template <bool kHasHigh>
static inline void tile_segment(const int8_t* x, size_t stride, const int8_t* const* w, size_t length, int32_t* sums,
                                Ahead& ahead) {
    _tile_zero(0);
    _tile_zero(1);
    if (kHasHigh) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t k = 0; k < length; k += kTileInputs) {
        ahead.fetch(ahead.tile_lines);
        _tile_loadd(4, x + k, stride);
        _tile_loadd(6, w[0] + k * kPanelOutputs, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, w[1] + k * kPanelOutputs, 64);
        _tile_dpbssd(1, 4, 7);
        if (kHasHigh) {
            _tile_loadd(5, x + kTileRows * stride + k, stride);
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + 256, 64);
    if (kHasHigh) {
        _tile_stored(2, sums + 512, 64);
        _tile_stored(3, sums + 768, 64);
    }
}

// Sums of half the segments: they are scaled and added once all are there, so that no sum waits for its tile.
constexpr size_t kHalf = kSegments / 2;
struct alignas(64) HalfSums { int32_t of[kHalf][4][kTileRows][kLanes]; };

// One row with one panel: what its sums of half the segments add to, scaled; zero where there are fewer of them.
QANAT_INLINE Lanes half_total(const HalfSums& sums, size_t tile, size_t row, size_t count, const float* row_scales, Lanes scale) {
    const auto part = [&](size_t s) __attribute__((always_inline)) {
        const Lanes dots{_mm512_cvtepi32_ps(_mm512_load_si512(sums.of[s][tile][row]))};
        return mul(mul(dots, broadcast(row_scales[s])), scale);
    };
    if (count == kHalf) return add(add(part(0), part(1)), add(part(2), part(3)));
    Lanes parts[kHalf] = {zero(), zero(), zero(), zero()};
    for (size_t s = 0; s < count; ++s) parts[s] = part(s);
    return add(add(parts[0], parts[1]), add(parts[2], parts[3]));
}

// Up to 32 rows from first_row on, whose activations begin at x, `stride` bytes apart, with one panel or two.
template <bool kHasHigh>
static void tiled_rows(const QuantisedArguments& a, const int8_t* x, size_t stride, size_t first_row, size_t num_rows,
                       size_t panel, size_t num_panels, Ahead ahead) {
    const PackedView& packed = a.packed;
    const size_t length = packed.segment_length, num_segments = packed.num_segments();
    const int8_t* w[2];
    Lanes scales[2], low[2][kBlockRows];
    for (size_t p = 0; p < 2; ++p) {
        const char* data = packed.panel(panel + (p < num_panels ? p : 0));
        w[p] = reinterpret_cast<const int8_t*>(data);
        scales[p] = load(scales_of(packed, data));
    }
    HalfSums sums;
    for (size_t half = 0; half < 2; ++half) {
        const size_t first = half * kHalf, left = num_segments > first ? num_segments - first : 0;
        const size_t count = left < kHalf ? left : kHalf;
        for (size_t s = 0; s < count; ++s) {
            tile_segment<kHasHigh>(x + (first + s) * length, stride, w, length, &sums.of[s][0][0][0], ahead);
            for (size_t p = 0; p < 2; ++p) w[p] += length * kPanelOutputs;
        }
        for (size_t r = 0; r < num_rows; ++r) {
            const float* row_scales = a.x.scales + in_row(a, first_row + r) * kSegments + first;
            ahead.fetch(ahead.row_lines);
            for (size_t p = 0; p < num_panels; ++p) {
                const Lanes total = half_total(sums, r / kTileRows * 2 + p, r % kTileRows, count, row_scales, scales[p]);
                if (half == 0) low[p][r] = total;
                else store_row(a, add(low[p][r], total), first_row + r, panel + p);
            }
        }
    }
}

// Chooses the code for one tile of rows or two.
static inline void tiled_block(const QuantisedArguments& a, const int8_t* x, size_t stride, size_t first_row,
                               size_t num_rows, size_t panel, size_t num_panels, Ahead ahead) {
    if (num_rows > kTileRows) tiled_rows<true>(a, x, stride, first_row, num_rows, panel, num_panels, ahead);
    else tiled_rows<false>(a, x, stride, first_row, num_rows, panel, num_panels, ahead);
}

// One block of rows reads the panels as a stream, and asks a little ahead for what comes; of several, each asks for its
// part of the next two panels.
constexpr size_t kAheadBytes = 4096, kLinesInRow = 2;
static inline Ahead ahead_of(const PackedView& packed, size_t panel, size_t block, size_t num_blocks, size_t num_rows) {
    const size_t num_tiles = packed.row_length() / kTileInputs;
    const size_t lines = (packed.row_length() / 4 + num_blocks - 1) / num_blocks;
    const size_t row_lines = num_blocks == 1 ? kLinesInRow : 0, in_rows = 2 * row_lines * num_rows;  // in both halves
    const size_t tile_lines = lines > in_rows ? (lines - in_rows + num_tiles - 1) / num_tiles : 0;
    const size_t first = num_blocks == 1 ? kAheadBytes : 2 * packed.panel_bytes() + block * lines * 64;
    return {{packed.panel(panel) + first, packed.panel(panel + 1) + first}, tile_lines, row_lines};
}

// Rows that lie scattered are put together first, a block of them for all panels.
static void linear_gathered(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                            size_t last_panel) {
    alignas(64) int8_t gathered[kMaxGatheredBytes];
    const size_t length = a.packed.row_length();
    for (size_t row = first_row; row < last_row; row += kBlockRows) {
        const size_t count = last_row - row < kBlockRows ? last_row - row : kBlockRows;
        for (size_t r = 0; r < count; ++r)
            __builtin_memcpy(gathered + r * length, a.x.values + in_row(a, row + r) * length, length);
        asm volatile("" : : : "memory");  // the compiler does not know that tiles are loaded from memory
        shape_tiles(count);
        for (size_t panel = first_panel; panel < last_panel; panel += 2)
            tiled_block(a, gathered, length, row, count, panel, last_panel - panel < 2 ? 1 : 2, ahead_of(a.packed, panel, 0, 1, count));
    }
}

static void linear_tiled(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                         size_t last_panel) {
    const size_t length = a.packed.row_length(), num_rows = last_row - first_row;
    const bool is_gathered = a.in_rows != nullptr;
    if (num_rows < kMinTiledRows || a.packed.segment_length % kTileInputs ||
        (is_gathered && kBlockRows * length > kMaxGatheredBytes)) {
        linear_int8(a, first_row, last_row, first_panel, last_panel);
        return;
    }
    asm volatile("" : : : "memory");
    if (is_gathered) {
        linear_gathered(a, first_row, last_row, first_panel, last_panel);
    } else {
        size_t shaped = 0;
        const size_t num_blocks = (num_rows + kBlockRows - 1) / kBlockRows;
        for (size_t panel = first_panel; panel < last_panel; panel += 2)
            for (size_t row = first_row; row < last_row; row += kBlockRows) {
                const size_t count = last_row - row < kBlockRows ? last_row - row : kBlockRows;
                if (count != shaped) shape_tiles(shaped = count);
                tiled_block(a, a.x.values + row * length, length, row, count, panel, last_panel - panel < 2 ? 1 : 2,
                           ahead_of(a.packed, panel, (row - first_row) / kBlockRows, num_blocks, count));
            }
    }
    _tile_release();
}

}  // namespace QANAT_ISA
}  // namespace qanat
