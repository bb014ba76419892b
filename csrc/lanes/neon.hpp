// 16 lanes in four registers of NEON (AArch64, where it also divides and takes roots exactly).
#pragma once

#include <arm_neon.h>

namespace qanat {
namespace QANAT_ISA {

struct Lanes { float32x4_t a, b, c, d; };
struct Bits { int32x4_t a, b, c, d; };

#define QANAT_EACH_1(f) {f(x.a), f(x.b), f(x.c), f(x.d)}
#define QANAT_EACH_2(f) {f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)}
#define QANAT_EACH_N(f, n) {f(x.a, n), f(x.b, n), f(x.c, n), f(x.d, n)}

QANAT_INLINE Lanes broadcast(float x) { const float32x4_t v = vdupq_n_f32(x); return {v, v, v, v}; }
QANAT_INLINE Lanes zero() { return broadcast(0.0f); }
QANAT_INLINE Lanes load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
QANAT_INLINE void store(float* p, Lanes x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
QANAT_INLINE Lanes add(Lanes x, Lanes y) { return QANAT_EACH_2(vaddq_f32); }
QANAT_INLINE Lanes sub(Lanes x, Lanes y) { return QANAT_EACH_2(vsubq_f32); }
QANAT_INLINE Lanes mul(Lanes x, Lanes y) { return QANAT_EACH_2(vmulq_f32); }
QANAT_INLINE Lanes div(Lanes x, Lanes y) { return QANAT_EACH_2(vdivq_f32); }
QANAT_INLINE Lanes square_root(Lanes x) { return QANAT_EACH_1(vsqrtq_f32); }
QANAT_INLINE Lanes fma(Lanes x, Lanes y, Lanes z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
}

// By comparison: NEON's own maximum is not a number where either operand is not, and orders the two zeros.
QANAT_INLINE float32x4_t greater_4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
QANAT_INLINE float32x4_t lesser_4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
QANAT_INLINE Lanes maximum(Lanes x, Lanes y) { return QANAT_EACH_2(greater_4); }
QANAT_INLINE Lanes minimum(Lanes x, Lanes y) { return QANAT_EACH_2(lesser_4); }

QANAT_INLINE Bits bits_of(Lanes x) { return QANAT_EACH_1(vreinterpretq_s32_f32); }
QANAT_INLINE Lanes from_bits(Bits x) { return QANAT_EACH_1(vreinterpretq_f32_s32); }
QANAT_INLINE Bits add_bits(Bits x, Bits y) { return QANAT_EACH_2(vaddq_s32); }
QANAT_INLINE Bits sub_bits(Bits x, Bits y) { return QANAT_EACH_2(vsubq_s32); }
QANAT_INLINE Bits broadcast_bits(int32_t x) { const int32x4_t v = vdupq_n_s32(x); return {v, v, v, v}; }
QANAT_INLINE Bits shift_left_23(Bits x) { return QANAT_EACH_N(vshlq_n_s32, 23); }
QANAT_INLINE Bits half_of(Bits x) { return QANAT_EACH_N(vshrq_n_s32, 1); }
QANAT_INLINE Bits load_bits(const int32_t* p) { return {vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}; }
QANAT_INLINE Bits xor_bits(Bits x, Bits y) { return QANAT_EACH_2(veorq_s32); }
QANAT_INLINE Bits mul_bits(Bits x, Bits y) { return QANAT_EACH_2(vmulq_s32); }
template <int kBy> QANAT_INLINE int32x4_t shift_right_4(int32x4_t x) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), kBy));
}
template <int kBy> QANAT_INLINE Bits shift_right(Bits x) { return QANAT_EACH_1(shift_right_4<kBy>); }
QANAT_INLINE Lanes float_of(Bits x) { return QANAT_EACH_1(vcvtq_f32_s32); }

QANAT_INLINE float32x4_t widen_4(uint16x4_t x) { return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(x), 16)); }
QANAT_INLINE Lanes load_bf16(const uint16_t* p) {
    const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return {widen_4(vget_low_u16(low)), widen_4(vget_high_u16(low)), widen_4(vget_low_u16(high)), widen_4(vget_high_u16(high))};
}

QANAT_INLINE float32x4_t float_4(int16x4_t x) { return vcvtq_f32_s32(vmovl_s16(x)); }
QANAT_INLINE Lanes load_int8(const int8_t* p) {
    const int16x8_t low = vmovl_s8(vld1_s8(p)), high = vmovl_s8(vld1_s8(p + 8));
    return {float_4(vget_low_s16(low)), float_4(vget_high_s16(low)), float_4(vget_low_s16(high)), float_4(vget_high_s16(high))};
}

QANAT_INLINE uint16x4_t nearest_4(float32x4_t x) {
    const uint32x4_t word = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(word, 16), vdupq_n_u32(1));
    const uint32x4_t nearest = vaddq_u32(vaddq_u32(word, vdupq_n_u32(0x7fff)), odd);
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), nearest, vdupq_n_u32(0x7fc00000)), 16);
}
QANAT_INLINE void store_bf16(uint16_t* p, Lanes x) {
    vst1q_u16(p, vcombine_u16(nearest_4(x.a), nearest_4(x.b)));
    vst1q_u16(p + 8, vcombine_u16(nearest_4(x.c), nearest_4(x.d)));
}

QANAT_INLINE float sum(Lanes x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
QANAT_INLINE float peak(Lanes x) {
    const float32x4_t four = greater_4(greater_4(x.a, x.c), greater_4(x.b, x.d));
    const float32x4_t two = greater_4(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(greater_4(two, vextq_f32(two, two, 1)), 0);
}

#undef QANAT_EACH_1
#undef QANAT_EACH_2
#undef QANAT_EACH_N

// Register blocks of the matrix product: (segments, rows) at once for few rows, and for many. 32 registers hold
// 4 x 4 sums for one row, or 4 x 6 sums of one segment.
constexpr int kFewSegments = 4, kFewRows = 1, kManySegments = 1, kManyRows = 6;

}  // namespace QANAT_ISA
}  // namespace qanat
