// Products of 4-bit weights with 8-bit activations on lanes. A weight w of -8..7 lies as w + 8 in half a byte, so it is
// the unsigned operand that the processors' instructions want; whoever sums takes 8 times the sum of the activations off.
//
//   Bytes            64 weights as bytes of 0..15: 4 inputs of each of 16 outputs
//   unpack(p)        the pair of them in 64 bytes: the low halves are inputs 0..3, the high ones inputs 4..7
//   Dots             int32 sums of 16 outputs, from `start_dots` over at most 8 `add_dots` to `end_dots`
//   to_lanes(bits)   int32 to fp32, rounded to the nearest even
#pragma once

#include "lanes.hpp"

namespace qanat {
namespace QANAT_ISA {

// What one Dots can add: pairs of 15 * 128 * 2 in 16 bits.
constexpr size_t kDotsInputs = 32;

QANAT_INLINE int32_t four_bytes(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return word;
}

#if defined(QANAT_ISA_AVX512)

struct Bytes { __m512i v; };
struct BytesPair { Bytes low, high; };

QANAT_INLINE BytesPair unpack(const uint8_t* p) {
    const __m512i packed = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
    return {{_mm512_and_si512(packed, mask)}, {_mm512_and_si512(_mm512_srli_epi16(packed, 4), mask)}};
}

#if defined(__AVX512VNNI__)
struct Dots { __m512i v; };
QANAT_INLINE Dots start_dots(Bits base) { return {base.v}; }
QANAT_INLINE Dots add_dots(Dots s, Bytes w, int32_t x) { return {_mm512_dpbusd_epi32(s.v, w.v, _mm512_set1_epi32(x))}; }
QANAT_INLINE Bits end_dots(Dots s) { return {s.v}; }
constexpr bool kHasRegistersForSums = true;  // of all rows at once, beside the weights
#else
struct Dots { __m512i v, base; };
QANAT_INLINE Dots start_dots(Bits base) { return {_mm512_setzero_si512(), base.v}; }
QANAT_INLINE Dots add_dots(Dots s, Bytes w, int32_t x) {
    return {_mm512_add_epi16(s.v, _mm512_maddubs_epi16(w.v, _mm512_set1_epi32(x))), s.base};
}
QANAT_INLINE Bits end_dots(Dots s) {
    return {_mm512_add_epi32(s.base, _mm512_madd_epi16(s.v, _mm512_set1_epi16(1)))};
}
constexpr bool kHasRegistersForSums = false;
#endif

QANAT_INLINE Lanes to_lanes(Bits x) { return {_mm512_cvtepi32_ps(x.v)}; }
constexpr int kInt4Rows = 8;  // rows that share unpacked weights

#elif defined(QANAT_ISA_AVX2)

struct Bytes { __m256i a, b; };
struct BytesPair { Bytes low, high; };

QANAT_INLINE BytesPair unpack(const uint8_t* p) {
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
    return {{_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)},
            {_mm256_and_si256(_mm256_srli_epi16(a, 4), mask), _mm256_and_si256(_mm256_srli_epi16(b, 4), mask)}};
}

#if defined(__AVXVNNI__)
struct Dots { __m256i a, b; };
QANAT_INLINE Dots start_dots(Bits base) { return {base.a, base.b}; }
QANAT_INLINE Dots add_dots(Dots s, Bytes w, int32_t x) {
    const __m256i four = _mm256_set1_epi32(x);
    return {_mm256_dpbusd_avx_epi32(s.a, w.a, four), _mm256_dpbusd_avx_epi32(s.b, w.b, four)};
}
QANAT_INLINE Bits end_dots(Dots s) { return {s.a, s.b}; }
#else
struct Dots { __m256i a, b; Bits base; };
QANAT_INLINE Dots start_dots(Bits base) { return {_mm256_setzero_si256(), _mm256_setzero_si256(), base}; }
QANAT_INLINE Dots add_dots(Dots s, Bytes w, int32_t x) {
    const __m256i four = _mm256_set1_epi32(x);
    return {_mm256_add_epi16(s.a, _mm256_maddubs_epi16(w.a, four)), _mm256_add_epi16(s.b, _mm256_maddubs_epi16(w.b, four)),
            s.base};
}
QANAT_INLINE Bits end_dots(Dots s) {
    const __m256i one = _mm256_set1_epi16(1);
    return add_bits(s.base, {_mm256_madd_epi16(s.a, one), _mm256_madd_epi16(s.b, one)});
}
#endif

QANAT_INLINE Lanes to_lanes(Bits x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
constexpr int kInt4Rows = 4;
constexpr bool kHasRegistersForSums = false;

#elif defined(QANAT_ISA_NEON)

struct Bytes { int8x16_t v[4]; };
struct BytesPair { Bytes low, high; };

QANAT_INLINE BytesPair unpack(const uint8_t* p) {
    BytesPair pair;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const uint8x16_t packed = vld1q_u8(p + i * 16);
        pair.low.v[i] = vreinterpretq_s8_u8(vandq_u8(packed, vdupq_n_u8(15)));
        pair.high.v[i] = vreinterpretq_s8_u8(vshrq_n_u8(packed, 4));
    }
    return pair;
}

#if defined(QANAT_ISA_DOTPROD)
struct Dots { Bits v; };
QANAT_INLINE Dots start_dots(Bits base) { return {base}; }
QANAT_INLINE Dots add_dots(Dots s, const Bytes& w, int32_t x) {
    const int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(x));
    return {{vdotq_s32(s.v.a, w.v[0], four), vdotq_s32(s.v.b, w.v[1], four), vdotq_s32(s.v.c, w.v[2], four),
             vdotq_s32(s.v.d, w.v[3], four)}};
}
QANAT_INLINE Bits end_dots(Dots s) { return s.v; }
constexpr int kInt4Rows = 4;
constexpr bool kHasRegistersForSums = true;
#else
struct Dots { int16x8_t v[8]; Bits base; };
QANAT_INLINE Dots start_dots(Bits base) {
    Dots s;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) s.v[i] = vdupq_n_s16(0);
    s.base = base;
    return s;
}
QANAT_INLINE Dots add_dots(Dots s, const Bytes& w, int32_t x) {
    const int8x8_t four = vreinterpret_s8_s32(vdup_n_s32(x));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        s.v[2 * i] = vmlal_s8(s.v[2 * i], vget_low_s8(w.v[i]), four);
        s.v[2 * i + 1] = vmlal_s8(s.v[2 * i + 1], vget_high_s8(w.v[i]), four);
    }
    return s;
}
QANAT_INLINE int32x4_t end_four(int16x8_t first, int16x8_t second) {
    return vpaddq_s32(vpaddlq_s16(first), vpaddlq_s16(second));
}
QANAT_INLINE Bits end_dots(Dots s) {
    return add_bits(s.base, {end_four(s.v[0], s.v[1]), end_four(s.v[2], s.v[3]), end_four(s.v[4], s.v[5]),
                             end_four(s.v[6], s.v[7])});
}
constexpr int kInt4Rows = 2;
constexpr bool kHasRegistersForSums = false;
#endif

QANAT_INLINE Lanes to_lanes(Bits x) {
    return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b), vcvtq_f32_s32(x.c), vcvtq_f32_s32(x.d)};
}

#else

struct Bytes { uint8_t v[64]; };
struct BytesPair { Bytes low, high; };

QANAT_INLINE BytesPair unpack(const uint8_t* p) {
    BytesPair pair;
    for (int i = 0; i < 64; ++i) {
        pair.low.v[i] = p[i] & 15;
        pair.high.v[i] = static_cast<uint8_t>(p[i] >> 4);
    }
    return pair;
}

struct Dots { Bits v; };
QANAT_INLINE Dots start_dots(Bits base) { return {base}; }
QANAT_INLINE Dots add_dots(Dots s, const Bytes& w, int32_t x) {
    int8_t four[4];
    __builtin_memcpy(four, &x, 4);
    for (int i = 0; i < 64; ++i) s.v.v[i / 4] += w.v[i] * four[i % 4];
    return s;
}
QANAT_INLINE Bits end_dots(Dots s) { return s.v; }

QANAT_INLINE Lanes to_lanes(Bits x) {
    Lanes r;
    for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(x.v[i]);
    return r;
}
constexpr int kInt4Rows = 2;
constexpr bool kHasRegistersForSums = false;

#endif

}  // namespace QANAT_ISA
}  // namespace qanat
