// Int8 products of many rows without VNNI: a piece of the weights is widened to int16 once for many rows, laid out as
// [inputs / 2][16][2], so that one instruction multiplies two inputs with 8 or 16 outputs and adds them.
#pragma once

#include "int8_product.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kMinWideRows = 4;          // with fewer, widening costs more than it saves
constexpr size_t kSharedRows = 48;          // that share the widened weights
constexpr size_t kSharedPanels = 4;         // that share the widened rows
// Inputs that are wide at a time, few enough for both sides to stay in the first-level cache.
constexpr size_t kMaxWideLength = 128;

// Plain register types: the compiler keeps arrays of them in registers, and those of structures it does not.
#if defined(QANAT_ISA_AVX512)
using Wide = __m512i;
constexpr int kWideParts = 1, kWideRows = 12;
QANAT_INLINE Wide widened(const int8_t* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
QANAT_INLINE void store_wide(int16_t* p, Wide x) { _mm512_storeu_si512(p, x); }
QANAT_INLINE Wide load_wide(const int16_t* p) { return _mm512_loadu_si512(p); }
QANAT_INLINE Wide same_wide(int32_t x) { return _mm512_set1_epi32(x); }
// The sum is written out, in this order, as compilers otherwise load all rows first and have no registers left for sums.
QANAT_INLINE Wide madd(Wide sums, Wide x, Wide w) {
    asm volatile("vpaddd %1, %0, %0" : "+v"(sums) : "v"(_mm512_madd_epi16(x, w)));
    return sums;
}
QANAT_INLINE Wide first_pairs(Wide x, Wide y) {
    return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), 0x88));
}
QANAT_INLINE Wide second_pairs(Wide x, Wide y) {
    return _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), 0xdd));
}
QANAT_INLINE Wide load_words(const int32_t* p) { return _mm512_load_si512(p); }
QANAT_INLINE void store_words(int32_t* p, Wide x) { _mm512_store_si512(p, x); }
QANAT_INLINE Lanes in_order(const int32_t* sums) {
    const __m512i pairs = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return {_mm512_cvtepi32_ps(_mm512_permutexvar_epi64(pairs, load_words(sums)))};
}
#else
using Wide = __m256i;
constexpr int kWideParts = 2, kWideRows = 6;
QANAT_INLINE Wide widened(const int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
QANAT_INLINE void store_wide(int16_t* p, Wide x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
QANAT_INLINE Wide load_wide(const int16_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
QANAT_INLINE Wide same_wide(int32_t x) { return _mm256_set1_epi32(x); }
QANAT_INLINE Wide madd(Wide sums, Wide x, Wide w) {
    asm volatile("vpaddd %1, %0, %0" : "+x"(sums) : "x"(_mm256_madd_epi16(x, w)));
    return sums;
}
QANAT_INLINE Wide first_pairs(Wide x, Wide y) {
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), 0x88));
}
QANAT_INLINE Wide second_pairs(Wide x, Wide y) {
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), 0xdd));
}
QANAT_INLINE Wide load_words(const int32_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
QANAT_INLINE void store_words(int32_t* p, Wide x) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), x); }
QANAT_INLINE Lanes in_order(const int32_t* sums) {
    return {_mm256_cvtepi32_ps(_mm256_permute4x64_epi64(load_words(sums), 0xd8)),
            _mm256_cvtepi32_ps(_mm256_permute4x64_epi64(load_words(sums + 8), 0xd8))};
}
#endif
constexpr size_t kWideValues = sizeof(Wide) / sizeof(int16_t);

// A segment of a panel: its outputs come in the order that `in_order` undoes.
static void widen_weights(const int8_t* w, size_t length, int16_t* wide) {
    for (size_t k = 0; k < length; k += 4, w += 64, wide += 64)
        for (int part = 0; part < kWideParts; ++part) {
            const int8_t* from = w + part * 2 * kWideValues;
            const Wide x = widened(from), y = widened(from + kWideValues);
            store_wide(wide + part * kWideValues, first_pairs(x, y));
            store_wide(wide + 32 + part * kWideValues, second_pairs(x, y));
        }
}

// What lies beyond the length is widened too, and not read.
QANAT_INLINE void widen_row(const int8_t* x, size_t length, int16_t* wide) {
    size_t i = 0;
    for (; i + kWideValues <= length; i += kWideValues) store_wide(wide + i, widened(x + i));
    for (; i < length; ++i) wide[i] = x[i];
}

using Totals = int32_t[kPanelOutputs];  // of a row with a panel, in the order that `in_order` undoes

// Adds a piece of each row times that of the panel to the totals, or begins them with it.
template <int kRows>
static void wide_dots(const int16_t* x, const int16_t* w, size_t length, bool is_first, Totals* totals) {
    Wide sums[kRows][kWideParts];
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int i = 0; i < kWideParts; ++i) sums[r][i] = is_first ? same_wide(0) : load_words(totals[r] + i * kWideValues / 2);
    size_t k = 0;
    do {  // a piece is never empty
        Wide weights[kWideParts];
#pragma GCC unroll 2
        for (int i = 0; i < kWideParts; ++i) weights[i] = load_wide(w + k * 16 + i * kWideValues);
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
            int32_t two;
            __builtin_memcpy(&two, x + r * kMaxWideLength + k, 4);
            const Wide inputs = same_wide(two);
#pragma GCC unroll 2
            for (int i = 0; i < kWideParts; ++i) sums[r][i] = madd(sums[r][i], inputs, weights[i]);
        }
        k += 2;
    } while (k < length);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
        for (int i = 0; i < kWideParts; ++i) store_words(totals[r] + i * kWideValues / 2, sums[r][i]);
}

template <int kRows>
static inline void wide_rows(size_t num_rows, const int16_t* x, const int16_t* w, size_t length, bool is_first, Totals* totals) {
    if constexpr (kRows > 0) {
        if (num_rows == static_cast<size_t>(kRows)) wide_dots<kRows>(x, w, length, is_first, totals);
        else wide_rows<kRows - 1>(num_rows, x, w, length, is_first, totals);
    }
}

// The totals of some inputs of up to kSharedRows rows with some panels.
static void wide_piece(const QuantisedArguments& a, size_t first_row, size_t num_rows, size_t panel, size_t num_panels,
                       size_t first_input, size_t length, bool is_first, Totals (*totals)[kSharedRows]) {
    alignas(64) int16_t weights[kSharedPanels][kMaxWideLength * kPanelOutputs], x[kWideRows * kMaxWideLength];
    for (size_t p = 0; p < num_panels; ++p)
        widen_weights(reinterpret_cast<const int8_t*>(a.packed.panel(panel + p)) + first_input * kPanelOutputs, length, weights[p]);
    for (size_t first = 0; first < num_rows; first += kWideRows) {
        const size_t count = num_rows - first < size_t(kWideRows) ? num_rows - first : size_t(kWideRows);
        for (size_t r = 0; r < count; ++r)
            widen_row(a.x.values + in_row(a, first_row + first + r) * a.packed.row_length() + first_input, length,
                      x + r * kMaxWideLength);
        for (size_t p = 0; p < num_panels; ++p)
            wide_rows<kWideRows>(count, x, weights[p], length, is_first, totals[p] + first);
    }
}

using Parts = Lanes[kSegments][kSharedRows];  // the scaled sums of each segment of the rows with a panel

// Joins and stores a panel's results; of a row that is one segment, the tree only makes zero positive.
static void finish_rows(const QuantisedArguments& a, Parts& parts, size_t first_row, size_t num_rows, size_t panel) {
    const size_t num_segments = a.packed.num_segments();
    if (num_segments == 1) {
        for (size_t r = 0; r < num_rows; ++r) store_row(a, add(parts[0][r], zero()), first_row + r, panel);
        return;
    }
    for (size_t s = num_segments; s < kSegments; ++s)
        for (size_t r = 0; r < num_rows; ++r) parts[s][r] = zero();
    for (size_t r = 0; r < num_rows; ++r) finish_row(a, &parts[0][r], kSharedRows, first_row + r, panel);
}

// Up to kSharedRows rows with up to kSharedPanels panels.
static void shared_rows(const QuantisedArguments& a, size_t first_row, size_t num_rows, size_t panel, size_t num_panels) {
    alignas(64) Totals totals[kSharedPanels][kSharedRows];
    const size_t length = a.packed.segment_length, num_segments = a.packed.num_segments();
    Parts parts[kSharedPanels];
    for (size_t s = 0; s < num_segments; ++s) {
        for (size_t done = 0; done < length; done += kMaxWideLength) {
            const size_t left = length - done;
            wide_piece(a, first_row, num_rows, panel, num_panels, s * length + done,
                       left < kMaxWideLength ? left : kMaxWideLength, done == 0, totals);
        }
        for (size_t p = 0; p < num_panels; ++p) {
            const Lanes scale = load(scales_of(a.packed, a.packed.panel(panel + p)));
            for (size_t r = 0; r < num_rows; ++r) {
                const float row_scale = a.x.scales[in_row(a, first_row + r) * kSegments + s];
                parts[p][s][r] = mul(mul(in_order(totals[p][r]), broadcast(row_scale)), scale);
            }
        }
    }
    for (size_t p = 0; p < num_panels; ++p) finish_rows(a, parts[p], first_row, num_rows, panel + p);
}

static void linear_wide(const QuantisedArguments& a, size_t first_row, size_t last_row, size_t first_panel,
                        size_t last_panel) {
    if (last_row - first_row < kMinWideRows) {
        linear_int8(a, first_row, last_row, first_panel, last_panel);
        return;
    }
    for (size_t panel = first_panel; panel < last_panel; panel += kSharedPanels)
        for (size_t row = first_row; row < last_row; row += kSharedRows)
            shared_rows(a, row, last_row - row < kSharedRows ? last_row - row : kSharedRows, panel,
                        last_panel - panel < kSharedPanels ? last_panel - panel : kSharedPanels);
}

}  // namespace QANAT_ISA
}  // namespace qanat
