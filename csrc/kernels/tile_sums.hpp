// What becomes of the sums in AMX's tiles: they are scaled, joined over the segments and stored. The work comes in units,
// some segments of up to 32 rows with two panels, so that the sums of one unit are scaled while the next is multiplied.
#pragma once

#include "int8_product.hpp"
#include "tile_shapes.hpp"

namespace qanat {
namespace QANAT_ISA {

// With fewer rows the weights come from memory no faster than VNNI multiplies them.
constexpr size_t kMinTiledRows = 8;
constexpr size_t kMaxCarriedRows = 384;
constexpr size_t kMaxGatheredBytes = size_t(1) << 17;

// Of a round of one segment or two, by tiles: the low rows with both panels, then the high ones.
struct alignas(64) UnitSums { int32_t of[2][4][kTileRows][kLanes]; };

// What a round adds to the tree of linear.hpp, over one round, two or four; segments that are not there count as zero.
enum class Join { kOnly, kFirst, kSecondOfTwo, kSecondOfFour, kThird, kFourth };

// A unit whose sums are known.
struct UnitScaling {
    const QuantisedArguments* a;
    const UnitSums* sums;
    size_t row, num_rows, panel, num_panels, first_segment;
    Lanes scales[2];
    Lanes (*low)[2], (*high)[2];  // of each row, what waits for later rounds
    Join join;
    bool is_plain;                // two whole panels without bias, and rows where they are
};

// Whether rows are where they are in memory, and outputs whole: then their sums take a short way.
static inline bool is_plain(const QuantisedArguments& a, size_t panel, size_t last_panel) {
    return !a.in_rows && !a.out_rows && !a.packed.has_bias && panel + 2 <= last_panel &&
           (panel + 2) * kPanelOutputs <= a.packed.num_outputs;
}

// Both panels of a row behind each other, as bf16 or fp32: what `store_any` stores.
QANAT_INLINE void store_both(const QuantisedArguments& a, size_t row, size_t panel, Lanes first, Lanes second) {
    const size_t at = row * a.out_stride + panel * kPanelOutputs;
    if (!a.is_out_bf16) {
        store(static_cast<float*>(a.out) + at, first);
        store(static_cast<float*>(a.out) + at + kLanes, second);
        return;
    }
    const auto rounded_up = [](Lanes x) __attribute__((always_inline)) {  // to the nearest even in the upper half
        const __m512i word = _mm512_castps_si512(x.v);
        const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
        const __m512i nearest = _mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7fff)), odd);
        const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
        return _mm512_mask_mov_epi32(nearest, is_nan, _mm512_set1_epi32(0x7fc00000));
    };
    alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i both = _mm512_permutex2var_epi16(rounded_up(first), _mm512_load_si512(kUpper), rounded_up(second));
    _mm512_storeu_si512(static_cast<uint16_t*>(a.out) + at, both);
}

template <int kRoundSegments, Join kJoin, bool kIsPlain>
QANAT_INLINE void scale_joined(const UnitScaling& unit, size_t first, size_t last) {
    const QuantisedArguments& a = *unit.a;
    const size_t num_panels = kIsPlain ? 2 : unit.num_panels;
    const Lanes scales[2] = {unit.scales[0], unit.scales[1]};
    for (size_t r = first; r < last; ++r) {
        const size_t row = unit.row + r;
        const float* row_scales = a.x.scales + (kIsPlain ? row : in_row(a, row)) * kSegments + unit.first_segment;
        Lanes totals[2];
#pragma GCC unroll 2
        for (size_t p = 0; p < 2; ++p) {
            if (p >= num_panels) break;
            const auto part = [&](size_t s) __attribute__((always_inline)) {
                const int32_t* dots = unit.sums->of[s][r / kTileRows * 2 + p][r % kTileRows];
                return mul(mul(Lanes{_mm512_cvtepi32_ps(_mm512_load_si512(dots))}, broadcast(row_scales[s])), scales[p]);
            };
            const Lanes total = kRoundSegments == 2 ? add(part(0), part(1)) : part(0);
            switch (kJoin) {
                case Join::kFirst: unit.low[r][p] = total; break;
                case Join::kSecondOfFour: unit.low[r][p] = add(unit.low[r][p], total); break;
                case Join::kThird: unit.high[r][p] = total; break;
                case Join::kOnly: totals[p] = add(total, zero()); break;
                case Join::kSecondOfTwo: totals[p] = add(add(unit.low[r][p], total), zero()); break;
                case Join::kFourth: totals[p] = add(unit.low[r][p], add(unit.high[r][p], total)); break;
            }
        }
        if (kJoin == Join::kFirst || kJoin == Join::kSecondOfFour || kJoin == Join::kThird) continue;
        if (kIsPlain) store_both(a, row, unit.panel, totals[0], totals[1]);
        else for (size_t p = 0; p < num_panels; ++p) store_row(a, totals[p], row, unit.panel + p);
    }
}

template <int kRoundSegments, bool kIsPlain>
QANAT_INLINE void scale_chosen(const UnitScaling& unit, size_t first, size_t last) {
    if (kRoundSegments == 1) return scale_joined<kRoundSegments, Join::kOnly, kIsPlain>(unit, first, last);
    switch (unit.join) {
        case Join::kOnly: return scale_joined<kRoundSegments, Join::kOnly, kIsPlain>(unit, first, last);
        case Join::kFirst: return scale_joined<kRoundSegments, Join::kFirst, kIsPlain>(unit, first, last);
        case Join::kSecondOfTwo: return scale_joined<kRoundSegments, Join::kSecondOfTwo, kIsPlain>(unit, first, last);
        case Join::kSecondOfFour: return scale_joined<kRoundSegments, Join::kSecondOfFour, kIsPlain>(unit, first, last);
        case Join::kThird: return scale_joined<kRoundSegments, Join::kThird, kIsPlain>(unit, first, last);
        case Join::kFourth: return scale_joined<kRoundSegments, Join::kFourth, kIsPlain>(unit, first, last);
    }
}

template <int kRoundSegments>
static __attribute__((noinline)) void scale_others(const UnitScaling& unit, size_t first, size_t last) {
    scale_chosen<kRoundSegments, false>(unit, first, last);
}

// Some rows of a unit. The common case is part of the caller's loop: a call for two rows costs as much as they do.
template <int kRoundSegments>
QANAT_INLINE void scale_rows(const UnitScaling& unit, size_t first, size_t last) {
    if (unit.is_plain) scale_chosen<kRoundSegments, true>(unit, first, last);
    else scale_others<kRoundSegments>(unit, first, last);
}

using TiledRows = void (*)(const QuantisedArguments&, const int8_t* x, size_t first_row, size_t last_row, size_t first_panel,
                           size_t last_panel);

// Rows that lie scattered are put together first, as many as there is room for, and then taken as rows at x.
static void gathered_rows(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel, size_t last_panel,
                          TiledRows rows) {
    alignas(64) int8_t gathered[kMaxGatheredBytes];
    const size_t length = a.packed.row_length(), most = kMaxGatheredBytes / length / kBlockRows * kBlockRows;
    for (size_t row = first_row; row < last_row; row += most) {
        const size_t last = last_row - row < most ? last_row : row + most;
        for (size_t r = row; r < last; ++r)
            __builtin_memcpy(gathered + (r - row) * length, a.x.values + in_row(a, r) * length, length);
        rows(a, gathered, row, last, first_panel, last_panel);
    }
}

// A product on tiles where it fits and pays, as the caller says, otherwise the plain one.
QANAT_INLINE void on_tiles_or(decltype(QuantisedKernels::linear) plain, TiledRows rows, bool is_tiled,
                              const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                              size_t last_panel) {
    const size_t length = a.packed.row_length();
    if (!is_tiled || (a.in_rows && kBlockRows * length > kMaxGatheredBytes)) {
        plain(a, first_row, last_row, first_panel, last_panel);
        return;
    }
    if (a.in_rows) gathered_rows(a, first_row, last_row, first_panel, last_panel, rows);
    else rows(a, a.x.values + first_row * length, first_row, last_row, first_panel, last_panel);
    _tile_release();
}

}  // namespace QANAT_ISA
}  // namespace qanat
