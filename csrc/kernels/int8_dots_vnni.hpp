// Exact sums of int8 products with VNNI, whose instruction multiplies unsigned bytes with signed ones: activations come
// with 128 added (`kIsBiased`), and 128 times the sum of the weights is taken off again. That sum is made on the way
// where there are few rows, and beforehand, for all rows, where there are many.
#pragma once

#include "../lanes/lanes.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr bool kIsBiased = true;

// Plain register types: the compiler keeps arrays of them in registers, and those of structures it does not.
#if defined(QANAT_ISA_AVX512)
using Words = __m512i;  // 16 int32, one for each output of a panel
constexpr int kParts = 1, kDotRows = 12, kDotPanels = 2;
QANAT_INLINE Words no_words() { return _mm512_setzero_si512(); }
QANAT_INLINE Words load_words(const void* p) { return _mm512_loadu_si512(p); }
QANAT_INLINE void store_words(void* p, Words x) { _mm512_storeu_si512(p, x); }
QANAT_INLINE Words same_words(int32_t x) { return _mm512_set1_epi32(x); }
// Written out, as compilers copy the sums to and fro around their own function for it.
QANAT_INLINE Words dot_words(Words sums, Words x, Words w) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w));
    return sums;
}
QANAT_INLINE Words take_off(Words x, Words sums) { return _mm512_sub_epi32(x, _mm512_slli_epi32(sums, 7)); }
QANAT_INLINE Lanes as_floats(const Words* x) { return {_mm512_cvtepi32_ps(x[0])}; }
#else
using Words = __m256i;  // 8 int32, one for each output of half a panel
constexpr int kParts = 2, kDotRows = 6, kDotPanels = 1;
QANAT_INLINE Words no_words() { return _mm256_setzero_si256(); }
QANAT_INLINE Words load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
QANAT_INLINE void store_words(void* p, Words x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
QANAT_INLINE Words same_words(int32_t x) { return _mm256_set1_epi32(x); }
QANAT_INLINE Words dot_words(Words sums, Words x, Words w) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(x), "x"(w));
    return sums;
}
QANAT_INLINE Words take_off(Words x, Words sums) { return _mm256_sub_epi32(x, _mm256_slli_epi32(sums, 7)); }
QANAT_INLINE Lanes as_floats(const Words* x) { return {_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])}; }
#endif
constexpr size_t kWordBytes = sizeof(Words);

// The sums of a segment's weights, one for each output of the panel.
QANAT_INLINE void weight_sums(const int8_t* w, size_t length, int32_t* sums) {
    const Words ones = same_words(0x01010101);
    for (int i = 0; i < kParts; ++i, w += kWordBytes, sums += kWordBytes / 4) {
        Words even = no_words(), odd = no_words();
        size_t k = 0;
        for (; k + 8 <= length; k += 8) {
            even = dot_words(even, ones, load_words(w + k * 16));
            odd = dot_words(odd, ones, load_words(w + k * 16 + 64));
        }
        if (k < length) even = dot_words(even, ones, load_words(w + k * 16));
        alignas(64) int32_t other[kWordBytes / 4];
        store_words(sums, even);
        store_words(other, odd);
        for (size_t lane = 0; lane < kWordBytes / 4; ++lane) sums[lane] += other[lane];
    }
}

// The sums over a segment of each row with the outputs of each panel, as fp32. `sums` [kPanels][16] are those of the
// weights where they are known, and ignored where they are to be made on the way.
template <int kRows, int kPanels, bool kHasSums>
QANAT_INLINE void segment_dots(const int8_t* const* x, const int8_t* const* w, size_t length, const int32_t (*sums)[16],
                               Lanes (*dots)[kRows]) {
    constexpr int kAll = kPanels * kParts;
    const Words ones = same_words(0x01010101);
    Words totals[kRows][kAll], own[kAll];
#pragma GCC unroll 2
    for (int i = 0; i < kAll; ++i) {
        own[i] = kHasSums ? load_words(sums[i / kParts] + i % kParts * (kWordBytes / 4)) : no_words();
        const Words start = kHasSums ? take_off(no_words(), own[i]) : no_words();
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) totals[r][i] = start;
    }
    size_t k = 0;
    do {  // a segment is never empty
        Words weights[kAll];
#pragma GCC unroll 2
        for (int i = 0; i < kAll; ++i) {
            const int8_t* from = w[i / kParts] + k * 16 + i % kParts * kWordBytes;
            weights[i] = load_words(from);
            if (!kHasSums) {
                __builtin_prefetch(from + 2048);
                own[i] = dot_words(own[i], ones, weights[i]);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
            int32_t four;
            __builtin_memcpy(&four, x[r] + k, 4);
            const Words inputs = same_words(four);
#pragma GCC unroll 2
            for (int i = 0; i < kAll; ++i) totals[r][i] = dot_words(totals[r][i], inputs, weights[i]);
        }
        k += 4;
    } while (k < length);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int i = 0; i < kAll; ++i)
            if (!kHasSums) totals[r][i] = take_off(totals[r][i], own[i]);
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) dots[p][r] = as_floats(&totals[r][p * kParts]);
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
