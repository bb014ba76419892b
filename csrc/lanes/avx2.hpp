// 16 lanes in two registers of AVX2 with FMA.
#pragma once

#include <immintrin.h>

namespace qanat {
namespace QANAT_ISA {

struct Lanes { __m256 a, b; };
struct Bits { __m256i a, b; };

QANAT_INLINE Lanes broadcast(float x) { const __m256 v = _mm256_set1_ps(x); return {v, v}; }
QANAT_INLINE Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
QANAT_INLINE Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
QANAT_INLINE void store(float* p, Lanes x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
QANAT_INLINE Lanes add(Lanes x, Lanes y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
QANAT_INLINE Lanes sub(Lanes x, Lanes y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
QANAT_INLINE Lanes mul(Lanes x, Lanes y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
QANAT_INLINE Lanes div(Lanes x, Lanes y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
QANAT_INLINE Lanes square_root(Lanes x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
QANAT_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
QANAT_INLINE Lanes maximum(Lanes x, Lanes y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
QANAT_INLINE Lanes minimum(Lanes x, Lanes y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }

QANAT_INLINE Bits bits_of(Lanes x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
QANAT_INLINE Lanes from_bits(Bits x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
QANAT_INLINE Bits add_bits(Bits x, Bits y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
QANAT_INLINE Bits sub_bits(Bits x, Bits y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
QANAT_INLINE Bits broadcast_bits(int32_t x) { const __m256i v = _mm256_set1_epi32(x); return {v, v}; }
QANAT_INLINE Bits shift_left_23(Bits x) { return {_mm256_slli_epi32(x.a, 23), _mm256_slli_epi32(x.b, 23)}; }
QANAT_INLINE Bits half_of(Bits x) { return {_mm256_srai_epi32(x.a, 1), _mm256_srai_epi32(x.b, 1)}; }
QANAT_INLINE Bits load_bits(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
QANAT_INLINE Bits xor_bits(Bits x, Bits y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
QANAT_INLINE Bits mul_bits(Bits x, Bits y) { return {_mm256_mullo_epi32(x.a, y.a), _mm256_mullo_epi32(x.b, y.b)}; }
template <int kBy> QANAT_INLINE Bits shift_right(Bits x) { return {_mm256_srli_epi32(x.a, kBy), _mm256_srli_epi32(x.b, kBy)}; }
QANAT_INLINE Lanes float_of(Bits x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }

QANAT_INLINE __m256 widen_8(const uint16_t* p) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}
QANAT_INLINE Lanes load_bf16(const uint16_t* p) { return {widen_8(p), widen_8(p + 8)}; }

QANAT_INLINE __m256 widen_8_int8(const int8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
QANAT_INLINE Lanes load_int8(const int8_t* p) { return {widen_8_int8(p), widen_8_int8(p + 8)}; }

QANAT_INLINE __m256i nearest_8(__m256 x) {
    const __m256i word = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
    const __m256i nearest =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(word, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(nearest, _mm256_set1_epi32(0x7fc0), is_nan);
}
QANAT_INLINE void store_bf16(uint16_t* p, Lanes x) {
    const __m256i packed = _mm256_packus_epi32(nearest_8(x.a), nearest_8(x.b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

QANAT_INLINE float sum(Lanes x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
QANAT_INLINE float peak(Lanes x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Register blocks of the matrix product: (segments, rows) at once for few rows, and for many. 16 registers hold
// 2 x 4 sums for one row, or 2 x 5 sums of one segment.
constexpr int kFewSegments = 4, kFewRows = 1, kManySegments = 1, kManyRows = 5;

}  // namespace QANAT_ISA
}  // namespace qanat
