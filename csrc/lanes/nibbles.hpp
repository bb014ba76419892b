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

QANAT_INLINE Lanes to_lanes(Bits x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
constexpr int kInt4Rows = 4;
constexpr bool kHasRegistersForSums = false;

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
