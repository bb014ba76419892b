// The key of a position's noise: `position_key` of qanat.kernels.reference.gumbel.
#pragma once

#include <cstdint>

namespace qanat {

inline uint64_t position_key(uint64_t key, uint64_t position) {
    uint64_t z = (key ^ position) + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

}  // namespace qanat
