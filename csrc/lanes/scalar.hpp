// 16 lanes in an array: for processors without AVX2, and the measure for the others' bits.
#pragma once

namespace qanat {
namespace QANAT_ISA {

struct Lanes { float v[16]; };
struct Bits { int32_t v[16]; };

#define QANAT_EACH(result, expression) \
    for (int i = 0; i < 16; ++i) result.v[i] = expression

QANAT_INLINE Lanes broadcast(float x) { Lanes r; QANAT_EACH(r, x); return r; }
QANAT_INLINE Lanes zero() { return broadcast(0.0f); }
QANAT_INLINE Lanes load(const float* p) { Lanes r; QANAT_EACH(r, p[i]); return r; }
QANAT_INLINE void store(float* p, Lanes x) { for (int i = 0; i < 16; ++i) p[i] = x.v[i]; }
QANAT_INLINE Lanes add(Lanes a, Lanes b) { Lanes r; QANAT_EACH(r, a.v[i] + b.v[i]); return r; }
QANAT_INLINE Lanes sub(Lanes a, Lanes b) { Lanes r; QANAT_EACH(r, a.v[i] - b.v[i]); return r; }
QANAT_INLINE Lanes mul(Lanes a, Lanes b) { Lanes r; QANAT_EACH(r, a.v[i] * b.v[i]); return r; }
QANAT_INLINE Lanes div(Lanes a, Lanes b) { Lanes r; QANAT_EACH(r, a.v[i] / b.v[i]); return r; }
QANAT_INLINE Lanes square_root(Lanes a) { Lanes r; QANAT_EACH(r, __builtin_sqrtf(a.v[i])); return r; }
QANAT_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { Lanes r; QANAT_EACH(r, __builtin_fmaf(a.v[i], b.v[i], c.v[i])); return r; }
QANAT_INLINE Lanes maximum(Lanes a, Lanes b) { Lanes r; QANAT_EACH(r, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); return r; }
QANAT_INLINE Lanes minimum(Lanes a, Lanes b) { Lanes r; QANAT_EACH(r, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); return r; }

QANAT_INLINE Bits bits_of(Lanes x) { Bits r; __builtin_memcpy(&r, &x, sizeof r); return r; }
QANAT_INLINE Lanes from_bits(Bits x) { Lanes r; __builtin_memcpy(&r, &x, sizeof r); return r; }
// Unsigned inside, because these wrap around on purpose where the argument is not a number.
QANAT_INLINE Bits add_bits(Bits a, Bits b) { Bits r; QANAT_EACH(r, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]))); return r; }
QANAT_INLINE Bits sub_bits(Bits a, Bits b) { Bits r; QANAT_EACH(r, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) - static_cast<uint32_t>(b.v[i]))); return r; }
QANAT_INLINE Bits broadcast_bits(int32_t x) { Bits r; QANAT_EACH(r, x); return r; }
QANAT_INLINE Bits shift_left_23(Bits a) { Bits r; QANAT_EACH(r, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << 23)); return r; }
QANAT_INLINE Bits half_of(Bits a) { Bits r; QANAT_EACH(r, a.v[i] >> 1); return r; }
QANAT_INLINE Bits load_bits(const int32_t* p) { Bits r; QANAT_EACH(r, p[i]); return r; }
QANAT_INLINE Bits xor_bits(Bits a, Bits b) { Bits r; QANAT_EACH(r, a.v[i] ^ b.v[i]); return r; }
QANAT_INLINE Bits mul_bits(Bits a, Bits b) { Bits r; QANAT_EACH(r, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) * static_cast<uint32_t>(b.v[i]))); return r; }
template <int kBy> QANAT_INLINE Bits shift_right(Bits a) { Bits r; QANAT_EACH(r, static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> kBy)); return r; }
QANAT_INLINE Lanes float_of(Bits a) { Lanes r; QANAT_EACH(r, static_cast<float>(a.v[i])); return r; }

QANAT_INLINE Lanes load_bf16(const uint16_t* p) {
    Bits r;
    QANAT_EACH(r, static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16));
    return from_bits(r);
}

QANAT_INLINE Lanes load_int8(const int8_t* p) { Lanes r; QANAT_EACH(r, static_cast<float>(p[i])); return r; }

QANAT_INLINE void store_bf16(uint16_t* p, Lanes x) {
    for (int i = 0; i < 16; ++i) {
        uint32_t word;
        __builtin_memcpy(&word, &x.v[i], 4);
        const bool is_nan = (word & 0x7fffffffu) > 0x7f800000u;
        const uint32_t nearest = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
        p[i] = static_cast<uint16_t>(is_nan ? 0x7fc0u : nearest);
    }
}

QANAT_INLINE float sum(Lanes x) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) x.v[i] = x.v[i] + x.v[i + width];
    return x.v[0];
}

QANAT_INLINE float peak(Lanes x) {
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; ++i) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
    return x.v[0];
}

#undef QANAT_EACH

// Register blocks of the matrix product: (segments, rows) at once for few rows, and for many.
constexpr int kFewSegments = 4, kFewRows = 1, kManySegments = 1, kManyRows = 4;

}  // namespace QANAT_ISA
}  // namespace qanat
