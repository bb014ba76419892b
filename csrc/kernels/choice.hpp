// What can be told of a row of scores block by block: the largest one, or where noise is drawn the largest sum of both, and
// whether all are finite (rules R6 and R11).
#pragma once

#include "noise.hpp"

namespace qanat {
namespace QANAT_ISA {

// 16 scores from index i on; -inf from `end` on.
QANAT_INLINE Lanes scores_at(const float* row, size_t i, size_t end) {
    if (i + kLanes <= end) return load(row + i);
    alignas(64) float some[kLanes];
    for (size_t j = 0; j < kLanes; ++j) some[j] = i + j < end ? row[i + j] : -__builtin_inff();
    return load(some);
}

// A value that is not a number if any of the scores is not finite (0 * x is 0 for all others).
static float poison_of(const float* row, size_t begin, size_t end) {
    Lanes poison = zero();
    for (size_t i = begin; i < end; i += kLanes) {
        const size_t count = lanes_left(end, i);
        poison = fma(count == kLanes ? load(row + i) : load_some(row + i, count), zero(), poison);
    }
    return sum(poison);
}

static float largest_of(const float* row, size_t begin, size_t end) {
    Lanes highest = broadcast(-__builtin_inff());
    for (size_t i = begin; i < end; i += kLanes) highest = maximum(scores_at(row, i, end), highest);
    return peak(highest);
}

// Largest quotients by the temperature, of each group and of all.
static float group_peaks(const float* row, size_t begin, size_t end, float temperature, float* groups) {
    const Lanes divisor = broadcast(temperature);
    float highest = -__builtin_inff();
    for (size_t first = begin; first < begin + kChoiceBlock; first += kChoiceGroup, ++groups) {
        Lanes own = broadcast(-__builtin_inff());
        for (size_t i = first; i < first + kChoiceGroup && i < end; i += kLanes)
            own = maximum(div(scores_at(row, i, end), divisor), own);
        *groups = peak(own);
        if (*groups > highest) highest = *groups;
    }
    return highest;
}

// The largest score / temperature + noise, the first of several, and its id (-1: no score is above -inf). Noise is only
// made where it could lead to a larger sum.
static float draw_open(const float* row, size_t begin, size_t end, const Draw& draw, int32_t& id) {
    constexpr float kMaxNoise = 22.88f;
    const Lanes divisor = broadcast(draw.temperature);
    float best = -__builtin_inff();
    id = -1;
    for (size_t i = begin; i < end; i += kLanes) {
        const Lanes x = div(scores_at(row, i, end), divisor);
        if (!(peak(add(x, broadcast(kMaxNoise))) > best)) continue;
        if (!(peak(add(x, noise_bound(draw.key, static_cast<uint32_t>(i)))) > best)) continue;
        alignas(64) float values[kLanes], bounds[kLanes];
        store(values, x);
        store(bounds, add(x, noise_bound(draw.key, static_cast<uint32_t>(i))));
        for (size_t j = 0; j < kLanes; ++j) {
            if (!(bounds[j] > best)) continue;
            const float sum = values[j] + noise_of(draw.key, static_cast<uint32_t>(i + j));
            if (!(sum > best)) continue;
            best = sum;
            id = static_cast<int32_t>(i + j);
        }
    }
    return best;
}

// Tasks are (row, block of kChoiceBlock scores), blocks fastest.
static void choice(const ChoiceArguments& a, size_t first, size_t last) {
    for (size_t task = first; task < last; ++task) {
        const size_t row_index = task / a.num_blocks(), begin = task % a.num_blocks() * kChoiceBlock;
        const size_t end = begin + kChoiceBlock < a.num_scores ? begin + kChoiceBlock : a.num_scores;
        const size_t end_valid = end < a.num_valid ? end : a.num_valid;
        const float* row = a.scores + row_index * a.stride;
        a.poisons[task] = poison_of(row, begin, end);
        const Draw* draw = a.draws ? a.draws + row_index : nullptr;
        if (!draw || draw->is_greedy()) {
            a.peaks[task] = largest_of(row, begin, end_valid);
        } else if (draw->is_filtered()) {
            float* groups = a.group_peaks + row_index * a.num_groups() + begin / kChoiceGroup;
            a.peaks[task] = group_peaks(row, begin, end_valid, draw->temperature, groups);
        } else {
            a.peaks[task] = draw_open(row, begin, end_valid, *draw, a.ids[task]);
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
