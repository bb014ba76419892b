// Int8 products of many rows with AMX: tiles of 16 rows of activations times 16 outputs. The packed layout is that of a
// weight tile. Two by two tiles of sums are computed at once, so that each tile that is loaded is used twice.
//
// The work is cut into units: some segments of up to 32 rows with two panels. While the tiles of one unit are multiplied, the
// sums of the unit before it are scaled: the two use different parts of a core.
#pragma once

#include "tile_sums.hpp"

namespace qanat {
namespace QANAT_ISA {

// What of the weights is asked for while a unit is multiplied, so that memory is read all the time.
struct Ahead {
    const char* at[2];
    size_t step_lines;  // of either panel, while a tile of it is multiplied
    QANAT_MEMBER void fetch() {
        for (size_t i = 0; i < step_lines; ++i) {
            __builtin_prefetch(at[0] + i * 64, 0, 2);
            __builtin_prefetch(at[1] + i * 64, 0, 2);
        }
        at[0] += step_lines * 64;
        at[1] += step_lines * 64;
    }
};

// Sums that wait for those of later rounds.
struct Carried { Lanes low[kMaxCarriedRows][2], high[kMaxCarriedRows][2]; };

// One call's rows: of first_row, `stride` bytes apart.
struct TiledCall {
    const QuantisedArguments& a;
    const int8_t* x;
    size_t stride, first_row;
};

// Whatever is read once only is loaded past the first-level cache, where the rest has room then: of several blocks of rows
// the activations, of a single one the weights.
#define QANAT_LOAD_TILE(is_once, tile, from, stride) \
    do { if (is_once) _tile_stream_loadd(tile, from, stride); else _tile_loadd(tile, from, stride); } while (0)

// Multiplies a unit's tiles, and scales the sums of the unit before it if there was one.
template <int kRoundSegments, bool kHasHigh, bool kIsSingle>
static void multiply_unit(const TiledCall& call, const UnitScaling& unit, UnitSums& sums, const UnitScaling* before,
                          Ahead ahead) {
    const PackedView& packed = call.a.packed;
    const size_t length = packed.segment_length, stride = call.stride, first = unit.first_segment * length;
    const int8_t* x = call.x + (unit.row - call.first_row) * stride + first;
    const int8_t* w[2];
    for (size_t p = 0; p < 2; ++p)
        w[p] = reinterpret_cast<const int8_t*>(packed.panel(unit.panel + (p < unit.num_panels ? p : 0))) + first * kPanelOutputs;
    const size_t num_before = before ? before->num_rows : 0, num_steps = kRoundSegments * length / kTileInputs;
    const size_t rows_in_step = (num_before + num_steps - 1) / num_steps;
    size_t scaled = 0;
    for (int s = 0; s < kRoundSegments; ++s) {
        _tile_zero(0);
        _tile_zero(1);
        if (kHasHigh) {
            _tile_zero(2);
            _tile_zero(3);
        }
        for (size_t k = s * length; k < (s + 1) * length; k += kTileInputs) {
            ahead.fetch();
            QANAT_LOAD_TILE(!kIsSingle, 4, x + k, stride);
            QANAT_LOAD_TILE(kIsSingle, 6, w[0] + k * kPanelOutputs, 64);
            _tile_dpbssd(0, 4, 6);
            QANAT_LOAD_TILE(kIsSingle, 7, w[1] + k * kPanelOutputs, 64);
            _tile_dpbssd(1, 4, 7);
            if (kHasHigh) {
                QANAT_LOAD_TILE(!kIsSingle, 5, x + kTileRows * stride + k, stride);
                _tile_dpbssd(2, 5, 6);
                _tile_dpbssd(3, 5, 7);
            }
            const size_t until = scaled + rows_in_step < num_before ? scaled + rows_in_step : num_before;
            if (scaled < until) scale_rows<kRoundSegments>(*before, scaled, until);
            scaled = until;
        }
        _tile_stored(0, sums.of[s][0], 64);
        _tile_stored(1, sums.of[s][1], 64);
        if (kHasHigh) {
            _tile_stored(2, sums.of[s][2], 64);
            _tile_stored(3, sums.of[s][3], 64);
        }
    }
}
#undef QANAT_LOAD_TILE

// A single block of rows reads the panels as a stream, and asks a little ahead for what comes; of several units that share
// panels, each asks for its part of the next two panels.
constexpr size_t kAheadBytes = 4096;
static inline Ahead ahead_of(const PackedView& packed, size_t panel, size_t unit, size_t num_units, size_t num_steps,
                             bool is_single) {
    const size_t share = is_single ? kTileInputs / 4 * num_steps : (packed.row_length() / 4 + num_units - 1) / num_units;
    const size_t first = is_single ? kAheadBytes + unit * share * 64 : 2 * packed.panel_bytes() + unit * share * 64;
    return {{packed.panel(panel) + first, packed.panel(panel + 1) + first}, (share + num_steps - 1) / num_steps};
}

static inline Join join_of(size_t num_rounds, size_t round) {
    if (num_rounds == 1) return Join::kOnly;
    if (round == 0) return Join::kFirst;
    if (round == 1) return num_rounds == 2 ? Join::kSecondOfTwo : Join::kSecondOfFour;
    return round == 2 ? Join::kThird : Join::kFourth;
}

template <int kRoundSegments, bool kIsSingle>
static void tiled_panels(const TiledCall& call, Carried& carried, size_t last_row, size_t first_panel, size_t last_panel) {
    const PackedView& packed = call.a.packed;
    const size_t num_rounds = packed.num_segments() / kRoundSegments, num_rows = last_row - call.first_row;
    const size_t num_units = num_rounds * ((num_rows + kBlockRows - 1) / kBlockRows);
    const size_t num_steps = kRoundSegments * packed.segment_length / kTileInputs;
    UnitSums all_sums[2];
    UnitScaling units[2];
    size_t count = 0, shaped = 0;
    for (size_t panel = first_panel; panel < last_panel; panel += 2) {
        const size_t num_panels = last_panel - panel < 2 ? 1 : 2;
        const Lanes scales[2] = {load(scales_of(packed, packed.panel(panel))),
                                 load(scales_of(packed, packed.panel(panel + num_panels - 1)))};
        const bool is_short = is_plain(call.a, panel, last_panel);
        for (size_t round = 0, index = 0; round < num_rounds; ++round) {
            for (size_t row = call.first_row; row < last_row; row += kBlockRows, ++index, ++count) {
                UnitSums& sums = all_sums[count % 2];
                UnitScaling& unit = units[count % 2];
                const size_t place = num_rounds > 1 ? row - call.first_row : 0;
                unit = {&call.a, &sums, row, last_row - row < kBlockRows ? last_row - row : kBlockRows, panel, num_panels,
                        round * kRoundSegments, {scales[0], scales[1]}, carried.low + place, carried.high + place,
                        join_of(num_rounds, round), is_short};
                if (unit.num_rows != shaped) shape_tiles(shaped = unit.num_rows, kTileInputs);
                const UnitScaling* before = count ? &units[(count + 1) % 2] : nullptr;
                const Ahead ahead = ahead_of(packed, panel, index, num_units, num_steps, kIsSingle);
                if (unit.num_rows > kTileRows) multiply_unit<kRoundSegments, true, kIsSingle>(call, unit, sums, before, ahead);
                else multiply_unit<kRoundSegments, false, kIsSingle>(call, unit, sums, before, ahead);
            }
        }
    }
    const UnitScaling& last = units[(count + 1) % 2];
    scale_rows<kRoundSegments>(last, 0, last.num_rows);
}

// Rows that lie behind each other at x.
static void tiled_rows(const QuantisedArguments& a, const int8_t* x, size_t first_row, size_t last_row, size_t first_panel,
                       size_t last_panel) {
    asm volatile("" : : : "memory");  // the compiler does not know that tiles are loaded from memory
    const size_t num_segments = a.packed.num_segments(), most = num_segments > 2 ? kMaxCarriedRows : last_row - first_row;
    Carried carried;
    for (size_t row = first_row; row < last_row; row += most) {
        const TiledCall call{a, x + (row - first_row) * a.packed.row_length(), a.packed.row_length(), row};
        const size_t last = last_row - row < most ? last_row : row + most;
        const bool is_single = last - row <= kBlockRows;
        if (num_segments == 1 && is_single) tiled_panels<1, true>(call, carried, last, first_panel, last_panel);
        else if (num_segments == 1) tiled_panels<1, false>(call, carried, last, first_panel, last_panel);
        else if (is_single) tiled_panels<2, true>(call, carried, last, first_panel, last_panel);
        else tiled_panels<2, false>(call, carried, last, first_panel, last_panel);
    }
}

// Whole segments of tiles, and a tree of rounds.
static inline bool is_tiled(const PackedView& packed) {
    const size_t num_segments = packed.num_segments();
    return packed.segment_length % kTileInputs == 0 && (num_segments & (num_segments - 1)) == 0;
}

static void linear_tiled(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                         size_t last_panel) {
    const bool pays = last_row - first_row >= kMinTiledRows && is_tiled(a.packed) && first_panel < last_panel;
    on_tiles_or(linear_int8, tiled_rows, pays, a, first_row, last_row, first_panel, last_panel);
}

}  // namespace QANAT_ISA
}  // namespace qanat
