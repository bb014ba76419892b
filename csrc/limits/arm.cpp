// The loops of aarch64.
#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstdint>

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "limits.hpp"

namespace qanat {

namespace {

constexpr int kChains = 12;

template <class Value>
void keep(const Value& value) {
    asm volatile("" : : "m"(value) : "memory");
}

template <class Value>
Value hidden(Value value) {
    asm volatile("" : "+m"(value));
    return value;
}

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

#if defined(__linux__)
bool has_dotprod() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
bool has_i8mm() { return getauxval(AT_HWCAP2) & HWCAP2_I8MM; }
#else
bool has_dotprod() { return true; }  // every processor of the other system that Qanat is built on
bool has_i8mm() { return false; }
#endif

}  // namespace

std::vector<RateLoop> rate_loops() {
    std::vector<RateLoop> loops = {{"neon", Operands::kFloat, kChains * 4, neon_float},
                                   {"neon", Operands::kInt8, kChains * 8, neon_int8}};
    if (has_dotprod()) loops.push_back({"neon_dotprod", Operands::kInt8, kChains * 16, dotprod_int8});
    if (has_i8mm()) loops.push_back({"neon_i8mm", Operands::kInt8, kChains * 32, i8mm_int8});
    return loops;
}

ReadLoop read_loop() { return neon_read; }

}  // namespace qanat

#endif
