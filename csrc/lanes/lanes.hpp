// The vector of all kernels: 16 fp32 lanes, whatever the registers of the machine are.
//
// Every kernel is written once against this interface and compiled once per instruction set. Because the number of
// lanes, the order of each reduction and each rounding are the same everywhere, all instruction sets give the same
// bits (rule R10). An implementation provides, in namespace qanat::QANAT_ISA:
//
//   Lanes                              16 fp32 values          Bits                     16 int32 values
//   zero() broadcast(x) load(p) store(p, x)                    load_bf16(p) store_bf16(p, x)  (nearest even)
//   load_int8(p)
//   add sub mul div square_root                                fma(a, b, c) = a b + c, rounded once
//   maximum minimum                    the second operand where one is not a number, as on x86
//   sum(x) peak(x)                     tree: lane i with i + 8, then i + 4, i + 2, i + 1
//   bits_of from_bits load_bits(p)     add_bits sub_bits mul_bits xor_bits (all wrap)
//   shift_left_23 half_of (arithmetic shift right by one) shift_right<n> (logical)   float_of (nearest even)
//
// These files must not use the standard library: a function that the linker merges between the instruction sets could
// be the copy that a lower processor cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#define QANAT_INLINE static inline __attribute__((always_inline))

#if defined(QANAT_ISA_AVX512)
#include "avx512.hpp"
#elif defined(QANAT_ISA_AVX2)
#include "avx2.hpp"
#elif defined(QANAT_ISA_NEON)
#include "neon.hpp"
#else
#include "scalar.hpp"
#endif

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kLanes = 16;

// Of fewer than 16 values; the other lanes are zero.
QANAT_INLINE Lanes load_some(const float* p, size_t count) {
    alignas(64) float full[kLanes] = {};
    for (size_t i = 0; i < count; ++i) full[i] = p[i];
    return load(full);
}

QANAT_INLINE Lanes load_some_bf16(const uint16_t* p, size_t count) {
    alignas(64) uint16_t full[kLanes] = {};
    for (size_t i = 0; i < count; ++i) full[i] = p[i];
    return load_bf16(full);
}

QANAT_INLINE void store_some(float* p, Lanes x, size_t count) {
    alignas(64) float full[kLanes];
    store(full, x);
    for (size_t i = 0; i < count; ++i) p[i] = full[i];
}

QANAT_INLINE void store_some_bf16(uint16_t* p, Lanes x, size_t count) {
    alignas(64) uint16_t full[kLanes];
    store_bf16(full, x);
    for (size_t i = 0; i < count; ++i) p[i] = full[i];
}

// `count` values (16 for all lanes) from index i on of an array of bf16 or fp32.
QANAT_INLINE Lanes load_any(const void* p, size_t i, bool is_bf16, size_t count = kLanes) {
    if (is_bf16) {
        const uint16_t* q = static_cast<const uint16_t*>(p) + i;
        return count >= kLanes ? load_bf16(q) : load_some_bf16(q, count);
    }
    const float* q = static_cast<const float*>(p) + i;
    return count >= kLanes ? load(q) : load_some(q, count);
}

QANAT_INLINE void store_any(void* p, size_t i, bool is_bf16, Lanes x, size_t count = kLanes) {
    if (is_bf16) {
        uint16_t* q = static_cast<uint16_t*>(p) + i;
        if (count >= kLanes) store_bf16(q, x);
        else store_some_bf16(q, x, count);
    } else {
        float* q = static_cast<float*>(p) + i;
        if (count >= kLanes) store(q, x);
        else store_some(q, x, count);
    }
}

QANAT_INLINE float scalar_any(const void* p, size_t i, bool is_bf16) {
    if (!is_bf16) return static_cast<const float*>(p)[i];
    union { uint32_t bits; float value; } word;
    word.bits = static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16;
    return word.value;
}

// What storing to this type and reading back gives: state that outlives a step is rounded before its first use.
QANAT_INLINE Lanes rounded(Lanes x, bool is_bf16) {
    if (!is_bf16) return x;
    alignas(64) uint16_t narrow[kLanes];
    store_bf16(narrow, x);
    return load_bf16(narrow);
}

QANAT_INLINE size_t lanes_left(size_t count, size_t i) { return count - i < kLanes ? count - i : kLanes; }

}  // namespace QANAT_ISA
}  // namespace qanat
