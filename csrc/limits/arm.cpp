// The loops of aarch64.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstdint>

#include "loops.hpp"

namespace qanat {

namespace {

void neon_float(size_t num_rounds) {
    float32x4_t sums[kChains];
    for (auto& sum : sums) sum = vdupq_n_f32(0);
    const float32x4_t factor = vdupq_n_f32(hidden(0.5f)), term = vdupq_n_f32(hidden(1.0f));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = vfmaq_f32(term, sums[i], factor);
    keep(sums);
}

void neon_int8(size_t num_rounds) {
    int32x4_t sums[kChains];
    for (auto& sum : sums) sum = vdupq_n_s32(0);
    const int8x8_t right = vdup_n_s8(hidden(int8_t(3)));
    int8x8_t left = vdup_n_s8(hidden(int8_t(5)));
    for (size_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) {
            int16x8_t products = vmull_s8(left, right);
            asm volatile("" : "+w"(products));
            sums[i] = vpadalq_s16(sums[i], products);
        }
        asm volatile("" : "+w"(left));
    }
    keep(sums);
}

__attribute__((target("arch=armv8.2-a+dotprod"))) void dotprod_int8(size_t num_rounds) {
    int32x4_t sums[kChains];
    for (auto& sum : sums) sum = vdupq_n_s32(0);
    const int8x16_t left = vdupq_n_s8(hidden(int8_t(5))), right = vdupq_n_s8(hidden(int8_t(3)));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = vdotq_s32(sums[i], left, right);
    keep(sums);
}

__attribute__((target("arch=armv8.2-a+i8mm"))) void i8mm_int8(size_t num_rounds) {
    int32x4_t sums[kChains];
    for (auto& sum : sums) sum = vdupq_n_s32(0);
    const int8x16_t left = vdupq_n_s8(hidden(int8_t(5))), right = vdupq_n_s8(hidden(int8_t(3)));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = vmmlaq_s32(sums[i], left, right);
    keep(sums);
}

void neon_read(const void* data, size_t size_bytes) {
    const uint8_t* at = static_cast<const uint8_t*>(data);
    uint8x16_t sums[8];
    for (auto& sum : sums) sum = vdupq_n_u8(0);
    for (size_t i = 0; i < size_bytes; i += 128)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; ++j) sums[j] = veorq_u8(sums[j], vld1q_u8(at + i + j * 16));
    keep(sums);
}

}  // namespace

const std::vector<RateLoop>& all_rate_loops() {
    static const std::vector<RateLoop> loops = {
        {"neon", Operands::kFloat, kChains * 4, neon_float},
        {"neon", Operands::kInt8, kChains * 8, neon_int8},
        {"neon_dotprod", Operands::kInt8, kChains * 16, dotprod_int8},
        {"neon_i8mm", Operands::kInt8, kChains * 32, i8mm_int8},
    };
    return loops;
}

ReadLoop read_loop() { return neon_read; }

}  // namespace qanat

#endif
