// The tiles of AMX as all products here use them: two by two tiles of sums.
#pragma once

#include "../lanes/lanes.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kTileRows = 16, kBlockRows = 32, kTileInputs = 64;

struct alignas(64) TileShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Tiles 0 to 3 are sums (of the low rows with both panels, then of the high ones), 4 and 5 activations, 6 and 7 weights, of
// so many inputs.
static void shape_tiles(size_t num_rows, size_t num_inputs) {
    const uint8_t weight_rows = static_cast<uint8_t>(num_inputs / 4);
    const uint8_t low = static_cast<uint8_t>(num_rows < kTileRows ? num_rows : kTileRows);
    const uint8_t high = static_cast<uint8_t>(num_rows > kTileRows ? num_rows - kTileRows : kTileRows);
    const uint8_t rows[8] = {low, low, high, high, low, high, weight_rows, weight_rows};
    TileShapes shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; ++i) {
        shapes.row_bytes[i] = static_cast<uint16_t>(i == 4 || i == 5 ? num_inputs : 64);
        shapes.rows[i] = rows[i];
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes));
}

}  // namespace QANAT_ISA
}  // namespace qanat
