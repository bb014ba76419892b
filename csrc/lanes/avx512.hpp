// 16 lanes in one register of AVX-512 (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>

namespace qanat {
namespace QANAT_ISA {

struct Lanes { __m512 v; };
struct Bits { __m512i v; };

QANAT_INLINE Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
QANAT_INLINE Lanes zero() { return {_mm512_setzero_ps()}; }
QANAT_INLINE Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
QANAT_INLINE void store(float* p, Lanes x) { _mm512_storeu_ps(p, x.v); }
QANAT_INLINE Lanes add(Lanes x, Lanes y) { return {_mm512_add_ps(x.v, y.v)}; }
QANAT_INLINE Lanes sub(Lanes x, Lanes y) { return {_mm512_sub_ps(x.v, y.v)}; }
QANAT_INLINE Lanes mul(Lanes x, Lanes y) { return {_mm512_mul_ps(x.v, y.v)}; }
QANAT_INLINE Lanes div(Lanes x, Lanes y) { return {_mm512_div_ps(x.v, y.v)}; }
QANAT_INLINE Lanes square_root(Lanes x) { return {_mm512_sqrt_ps(x.v)}; }
QANAT_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
QANAT_INLINE Lanes maximum(Lanes x, Lanes y) { return {_mm512_max_ps(x.v, y.v)}; }
QANAT_INLINE Lanes minimum(Lanes x, Lanes y) { return {_mm512_min_ps(x.v, y.v)}; }

QANAT_INLINE Bits bits_of(Lanes x) { return {_mm512_castps_si512(x.v)}; }
QANAT_INLINE Lanes from_bits(Bits x) { return {_mm512_castsi512_ps(x.v)}; }
QANAT_INLINE Bits add_bits(Bits x, Bits y) { return {_mm512_add_epi32(x.v, y.v)}; }
QANAT_INLINE Bits sub_bits(Bits x, Bits y) { return {_mm512_sub_epi32(x.v, y.v)}; }
QANAT_INLINE Bits broadcast_bits(int32_t x) { return {_mm512_set1_epi32(x)}; }
QANAT_INLINE Bits shift_left_23(Bits x) { return {_mm512_slli_epi32(x.v, 23)}; }
QANAT_INLINE Bits half_of(Bits x) { return {_mm512_srai_epi32(x.v, 1)}; }
QANAT_INLINE Bits load_bits(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
QANAT_INLINE Bits xor_bits(Bits x, Bits y) { return {_mm512_xor_si512(x.v, y.v)}; }
QANAT_INLINE Bits mul_bits(Bits x, Bits y) { return {_mm512_mullo_epi32(x.v, y.v)}; }
template <int kBy> QANAT_INLINE Bits shift_right(Bits x) { return {_mm512_srli_epi32(x.v, kBy)}; }
QANAT_INLINE Lanes float_of(Bits x) { return {_mm512_cvtepi32_ps(x.v)}; }

QANAT_INLINE Lanes load_bf16(const uint16_t* p) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16))};
}

QANAT_INLINE Lanes load_int8(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}

// Not the instruction of AVX512_BF16: that one turns denormal numbers into zero, which the other sets do not.
QANAT_INLINE void store_bf16(uint16_t* p, Lanes x) {
    const __m512i word = _mm512_castps_si512(x.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
    const __m512i nearest =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_mask_mov_epi32(nearest, is_nan, _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(chosen));
}

QANAT_INLINE float sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
QANAT_INLINE float peak(Lanes x) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Register blocks of the matrix product: (segments, rows) at once for few rows, and for many.
constexpr int kFewSegments = 4, kFewRows = 3, kManySegments = 4, kManyRows = 6;

}  // namespace QANAT_ISA
}  // namespace qanat
