// What the sampler wants to know of a row of scores: where its largest one stands, and whether all are finite.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

// Tasks are (row, block of kChoiceBlock scores), blocks fastest; each leaves the largest score of its block that may be
// chosen, and a value that is not a number if any of the block's scores is not finite (0 * x is 0 for all others).
static void choice(const ChoiceArguments& a, size_t first, size_t last) {
    const size_t num_blocks = a.num_blocks();
    for (size_t task = first; task < last; ++task) {
        const size_t begin = task % num_blocks * kChoiceBlock;
        const size_t end = begin + kChoiceBlock < a.num_scores ? begin + kChoiceBlock : a.num_scores;
        const size_t end_valid = end < a.num_valid ? end : a.num_valid;
        const float* row = a.scores + task / num_blocks * a.stride;
        Lanes highest = broadcast(-__builtin_inff()), poison = zero();
        for (size_t i = begin; i < end; i += kLanes) {
            const size_t count = lanes_left(end, i);
            const Lanes x = count == kLanes ? load(row + i) : load_some(row + i, count);
            poison = fma(x, zero(), poison);
            if (i + kLanes <= end_valid) {
                highest = maximum(x, highest);
            } else {
                alignas(64) float some[kLanes];
                store(some, x);
                for (size_t j = i < end_valid ? end_valid - i : 0; j < kLanes; ++j) some[j] = -__builtin_inff();
                highest = maximum(load(some), highest);
            }
        }
        a.peaks[task] = peak(highest);
        a.poisons[task] = sum(poison);
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
