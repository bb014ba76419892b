// The filters min_p, top_k and top_p, as `qanat.kernels.reference.candidates` defines them, and the draw among what they
// leave. Weights and their sums are fp64 and made of IEEE operations alone, so that they have the same bits everywhere.
#pragma once

#include "noise.hpp"

namespace qanat {
namespace QANAT_ISA {

// exp(x) for x <= 0: 2^n exp(r), n the integer nearest to x / ln 2, by Taylor's series to degree 13, whose first neglected
// term is below 1e-17 there. Below -745 it is zero.
QANAT_INLINE double exponential_down(double x) {
    const double magic = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
    const double clamped = x < -760.0 ? -760.0 : x;
    const double shifted = clamped * 0x1.71547652b82fep0 + magic, n = shifted - magic;
    const double r = (clamped - n * kLn2High) - n * kLn2Low;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r * r + r;
    // 2^n as a product of two powers, since n can lie below the exponents that one number has.
    uint64_t bits;
    __builtin_memcpy(&bits, &shifted, 8);
    const uint64_t power = (bits - 0x4338000000000000ull) + 1200;  // n + 1200: at least 0
    const uint64_t half = power >> 1, rest = power - half;
    const uint64_t first_bits = (half + 1023 - 600) << 52, second_bits = (rest + 1023 - 600) << 52;
    double first, second;
    __builtin_memcpy(&first, &first_bits, 8);
    __builtin_memcpy(&second, &second_bits, 8);
    return (1.0 + p) * first * second;
}

// The weights of all scores that min_p leaves, added in order of id.
static double mass(const FilterArguments& a) {
    constexpr size_t kPart = 256;
    double total = 0.0, weights[kPart];
    for (size_t begin = 0; begin < a.num_valid; begin += kPart) {
        const size_t count = a.num_valid - begin < kPart ? a.num_valid - begin : kPart;
        for (size_t i = 0; i < count; ++i) {
            const float relative = a.scores[begin + i] / a.draw.temperature - a.peak;
            const double weight = exponential_down(static_cast<double>(relative));
            weights[i] = relative >= a.draw.log_min_p ? weight : 0.0;
        }
        for (size_t i = 0; i < count; ++i) total += weights[i];
    }
    return total;
}

// How many of the sorted candidates the filters keep, from 1 on. `mass` is that of all scores; with top_k it is left aside:
// the weights that top_p reaches for are then those of the first k.
static size_t kept(const FilterArguments& a, const Candidate* sorted, size_t count, double mass) {
    if (a.draw.top_k > 0 && static_cast<size_t>(a.draw.top_k) < count) count = static_cast<size_t>(a.draw.top_k);
    size_t likely = 1;
    while (likely < count && sorted[likely].value - a.peak >= a.draw.log_min_p) ++likely;
    if (!(a.draw.top_p < 1.0)) return likely;
    if (a.draw.top_k > 0) {
        mass = 0.0;
        for (size_t i = 0; i < likely; ++i) mass += exponential_down(static_cast<double>(sorted[i].value - a.peak));
    }
    double reached = 0.0;
    for (size_t i = 0; i < likely; ++i) {
        const double weight = exponential_down(static_cast<double>(sorted[i].value - a.peak));
        reached += weight;
        if (i > 0 && !(reached - weight < a.draw.top_p * mass)) return i;
    }
    return likely;
}

// The id of the largest value + noise among what the filters keep, the lowest of several.
static int32_t pick(const FilterArguments& a, const Candidate* sorted, size_t count, double mass) {
    const size_t num_kept = kept(a, sorted, count, mass);
    int32_t best_id = sorted[0].id;
    float best = -__builtin_inff();
    for (size_t i = 0; i < num_kept; ++i) {
        const float sum = sorted[i].value + noise_of(a.draw.key, static_cast<uint32_t>(sorted[i].id));
        if (sum > best || (sum == best && sorted[i].id < best_id)) {
            best = sum;
            best_id = sorted[i].id;
        }
    }
    return best_id;
}

}  // namespace QANAT_ISA
}  // namespace qanat
