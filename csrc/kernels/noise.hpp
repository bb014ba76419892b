// The sampling noise of `qanat.kernels.reference.gumbel`, where its definition stands: a pure function of a key and a
// token id (rule R6). Made of nothing but IEEE operations in fp64, so that its bits are the same everywhere.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr uint32_t kMixFirst = 0x7FEB352Du, kMixSecond = 0x846CA68Bu;
constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;  // together ln 2; the first has 41 bits

QANAT_INLINE uint32_t mix(uint32_t z) {
    z = (z ^ (z >> 16)) * kMixFirst;
    z = (z ^ (z >> 15)) * kMixSecond;
    return z ^ (z >> 16);
}

QANAT_INLINE uint32_t noise_bits(uint64_t key, uint32_t id) {
    return mix(mix(id ^ static_cast<uint32_t>(key)) + static_cast<uint32_t>(key >> 32));
}

// log x of a normal number: x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)], and log(1 + f) = 2 artanh(f / (2 + f)) by
// its series. The quotient and the sums are carried in two numbers each: nearly always the nearest result.
QANAT_INLINE double logarithm(double x) {
    uint64_t bits;
    __builtin_memcpy(&bits, &x, 8);
    const uint64_t above = bits - 0x3fe6a09e667f3bcdull;  // sqrt(1/2)
    const double k = static_cast<double>(static_cast<int64_t>(above) >> 52);
    bits -= (above >> 52) << 52;
    double m;
    __builtin_memcpy(&m, &bits, 8);
    const double f = m - 1.0, d = 2.0 + f, d_low = f - (d - 2.0);
    const double s = f / d, s_low = (__builtin_fma(-s, d, f) - s * d_low) / d, z = s * s;
    double p = 2.0 / 25.0;
    p = p * z + 2.0 / 23.0;
    p = p * z + 2.0 / 21.0;
    p = p * z + 2.0 / 19.0;
    p = p * z + 2.0 / 17.0;
    p = p * z + 2.0 / 15.0;
    p = p * z + 2.0 / 13.0;
    p = p * z + 2.0 / 11.0;
    p = p * z + 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    const double rest = 2.0 * s_low + s * (z * p) + k * kLn2Low;
    const double large = k * kLn2High, small = 2.0 * s, sum = large + small;
    return sum + ((large - sum) + small + rest);
}

QANAT_INLINE float noise_of(uint64_t key, uint32_t id) {
    const double uniform = (static_cast<double>(noise_bits(key, id)) + 0.5) * 0x1p-32;
    return static_cast<float>(-logarithm(-logarithm(uniform)));
}

QANAT_INLINE Bits mix_lanes(Bits z) {
    z = mul_bits(xor_bits(z, shift_right<16>(z)), broadcast_bits(static_cast<int32_t>(kMixFirst)));
    z = mul_bits(xor_bits(z, shift_right<15>(z)), broadcast_bits(static_cast<int32_t>(kMixSecond)));
    return xor_bits(z, shift_right<16>(z));
}

// At least the noise of 16 ids in a row. With u = (bits + 1/2) / 2^32: -log(-log u) <= -log(1 - u), since -log u >= 1 - u,
// and the bits of a number, read as an integer, tell a lower bound of its logarithm.
QANAT_INLINE Lanes noise_bound(uint64_t key, uint32_t first_id) {
    alignas(64) static const int32_t kRising[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Bits ids = add_bits(broadcast_bits(static_cast<int32_t>(first_id)), load_bits(kRising));
    const Bits low = broadcast_bits(static_cast<int32_t>(static_cast<uint32_t>(key)));
    const Bits high = broadcast_bits(static_cast<int32_t>(static_cast<uint32_t>(key >> 32)));
    const Bits bits = mix_lanes(add_bits(mix_lanes(xor_bits(ids, low)), high));
    const Bits others = xor_bits(bits, broadcast_bits(-1));
    const Lanes half_left = add(float_of(shift_right<1>(others)), broadcast(0.25f));  // (1 - u) 2^31, or a little less
    constexpr float kLn2 = 0.69314718f, kSlack = 0.001f;
    return fma(float_of(bits_of(half_left)), broadcast(-kLn2 / 8388608.0f), broadcast(kLn2 * (31.0f + 127.0f) + kSlack));
}

}  // namespace QANAT_ISA
}  // namespace qanat
