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

// Rows of activations, `stride` bytes apart, times a segment of two panels; sums [2 tiles of rows][2 panels][16][16].
template <bool kHasHigh>
static inline void tile_segment(const int8_t* x, size_t stride, const int8_t* const* w, size_t length, int32_t* sums) {
    _tile_zero(0);
    _tile_zero(1);
    if (kHasHigh) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (size_t k = 0; k < length; k += kTileInputs) {
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

// Up to 32 rows from first_row on, whose activations begin at x, `stride` bytes apart, with one panel or two.
static void tiled_rows(const QuantisedArguments& a, const int8_t* x, size_t stride, size_t first_row, size_t num_rows,
                       size_t panel, size_t num_panels) {
    const PackedView& packed = a.packed;
    const size_t length = packed.segment_length, num_segments = packed.num_segments();
    const int8_t* w[2];
    Lanes scales[2];
    for (size_t p = 0; p < 2; ++p) {
        const char* data = packed.panel(panel + (p < num_panels ? p : 0));
        w[p] = reinterpret_cast<const int8_t*>(data);
        scales[p] = load(scales_of(packed, data));
    }
    alignas(64) int32_t sums[4][kTileRows][kLanes];
    Lanes parts[kSegments][2][kBlockRows];
    for (size_t s = 0; s < num_segments; ++s) {
        if (num_rows > kTileRows) tile_segment<true>(x + s * length, stride, w, length, &sums[0][0][0]);
        else tile_segment<false>(x + s * length, stride, w, length, &sums[0][0][0]);
        for (size_t r = 0; r < num_rows; ++r) {
            const Lanes row_scale = broadcast(a.x.scales[in_row(a, first_row + r) * kSegments + s]);
            for (size_t p = 0; p < 2; ++p) {
                const __m512i words = _mm512_load_si512(sums[r / kTileRows * 2 + p][r % kTileRows]);
                parts[s][p][r] = mul(mul({_mm512_cvtepi32_ps(words)}, row_scale), scales[p]);
            }
        }
        for (size_t p = 0; p < 2; ++p) w[p] += length * kPanelOutputs;
    }
    for (size_t s = num_segments; s < kSegments; ++s)
        for (size_t p = 0; p < 2; ++p)
            for (size_t r = 0; r < num_rows; ++r) parts[s][p][r] = zero();
    for (size_t p = 0; p < num_panels; ++p)
        for (size_t r = 0; r < num_rows; ++r)
            finish_row(a, &parts[0][p][r], 2 * kBlockRows, first_row + r, panel + p);
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
            tiled_rows(a, gathered, length, row, count, panel, last_panel - panel < 2 ? 1 : 2);
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
        for (size_t panel = first_panel; panel < last_panel; panel += 2)
            for (size_t row = first_row; row < last_row; row += kBlockRows) {
                const size_t count = last_row - row < kBlockRows ? last_row - row : kBlockRows;
                if (count != shaped) shape_tiles(shaped = count);
                tiled_rows(a, a.x.values + row * length, length, row, count, panel, last_panel - panel < 2 ? 1 : 2);
            }
    }
    _tile_release();
}

}  // namespace QANAT_ISA
}  // namespace qanat
