// exp, sigmoid, silu and softplus on lanes: made of nothing but the lanes' own operations, so that they have the same
// bits on every instruction set. Errors: exp and what is made of it stay within 3 units in the last place.
#pragma once

#include "lanes.hpp"

namespace qanat {
namespace QANAT_ISA {

// exp(x) = 2^n exp(r), n the integer nearest to x / ln 2, r in +-ln(2)/2 by a polynomial (Taylor's, to degree 7: its
// first neglected term is below 6e-9 there). Overflows to infinity, underflows through the denormal numbers to zero.
QANAT_INLINE Lanes exponential(Lanes x) {
    const Lanes magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    x = minimum(broadcast(89.0f), maximum(broadcast(-105.0f), x));
    const Lanes shifted = fma(x, broadcast(1.44269504088896341f), magic);
    const Lanes n = sub(shifted, magic);
    // ln 2 in two parts, the first with few enough bits that n times it is exact.
    Lanes r = fma(n, broadcast(-0.693359375f), x);
    r = fma(n, broadcast(2.12194440e-4f), r);
    Lanes p = broadcast(1.0f / 5040.0f);
    p = fma(p, r, broadcast(1.0f / 720.0f));
    p = fma(p, r, broadcast(1.0f / 120.0f));
    p = fma(p, r, broadcast(1.0f / 24.0f));
    p = fma(p, r, broadcast(1.0f / 6.0f));
    p = fma(p, r, broadcast(0.5f));
    p = fma(p, r, broadcast(1.0f));
    p = fma(p, r, broadcast(1.0f));
    // 2^n as a product of two powers, since n can lie outside the exponents that one number has.
    const Bits power = sub_bits(bits_of(shifted), bits_of(magic));
    const Bits first = half_of(power), second = sub_bits(power, first);
    const Bits bias = broadcast_bits(127);
    p = mul(p, from_bits(shift_left_23(add_bits(first, bias))));
    return mul(p, from_bits(shift_left_23(add_bits(second, bias))));
}

QANAT_INLINE Lanes sigmoid(Lanes x) {
    const Lanes one = broadcast(1.0f);
    return div(one, add(one, exponential(sub(zero(), x))));
}

QANAT_INLINE Lanes silu(Lanes x) { return div(x, add(broadcast(1.0f), exponential(sub(zero(), x)))); }

// log(1 + u) for u in [0, 1]: 2 artanh(z) with z = u / (2 + u) <= 1/3, by its series.
QANAT_INLINE Lanes log_one_plus(Lanes u) {
    const Lanes z = div(u, add(u, broadcast(2.0f)));
    const Lanes s = mul(z, z);
    Lanes p = broadcast(2.0f / 15.0f);
    p = fma(p, s, broadcast(2.0f / 13.0f));
    p = fma(p, s, broadcast(2.0f / 11.0f));
    p = fma(p, s, broadcast(2.0f / 9.0f));
    p = fma(p, s, broadcast(2.0f / 7.0f));
    p = fma(p, s, broadcast(2.0f / 5.0f));
    p = fma(p, s, broadcast(2.0f / 3.0f));
    p = fma(p, s, broadcast(2.0f));
    return mul(p, z);
}

// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): never overflows.
QANAT_INLINE Lanes softplus(Lanes x) {
    const Lanes magnitude = maximum(sub(zero(), x), x);
    return add(maximum(zero(), x), log_one_plus(exponential(sub(zero(), magnitude))));
}

QANAT_INLINE float exponential_of(float x) {
    alignas(64) float values[kLanes];
    store(values, exponential(broadcast(x)));
    return values[0];
}

}  // namespace QANAT_ISA
}  // namespace qanat
