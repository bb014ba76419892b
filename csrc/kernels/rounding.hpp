// Float matrices as whole numbers with a scale for each group of inputs: the search of `qanat.quant.rounding`, with its
// bits. Every sum is the same tree of additions, by halves of what is left.
#pragma once

#include "int8_values.hpp"

namespace qanat {
namespace QANAT_ISA {

// Sum of `part(i)` over the vectors that begin at value i; `part` gives zeros beyond the group.
template <class Part>
QANAT_INLINE float tree_sum(size_t size, float* room, Part part) {
    if (size == 2 * kLanes) return sum(add(part(0), part(kLanes)));
    for (size_t i = 0; i < size; i += kLanes) store(room + i, part(i));
    while (size > 1) {
        const size_t half = size / 2, from = size - half;
        size_t i = 0;
        for (; i + kLanes <= half; i += kLanes) store(room + i, add(load(room + i), load(room + from + i)));
        for (; i < half; ++i) room[i] += room[from + i];
        size = from;
    }
    return room[0];
}

// A group of values, and how much each of them counts.
struct RoundingGroup {
    const float *values, *importance;  // importance null: all alike
    float* room;
    size_t size;
    float lowest, highest;  // whole numbers that may be used

    QANAT_MEMBER Lanes counted(size_t i, Lanes x) const { return importance ? mul(x, load(importance + i)) : x; }
    // Ties to even. What is no number stays none.
    QANAT_MEMBER Lanes nearest(Lanes x) const {
        const Lanes inside = minimum(broadcast(highest), maximum(broadcast(lowest), x));
        return sub(add(inside, broadcast(kRounder)), broadcast(kRounder));
    }
    QANAT_MEMBER Lanes rounded(size_t i, float scale) const {
        return scale == 0.0f ? zero() : nearest(div(load(values + i), broadcast(scale)));
    }
};

// The least-squares scale of the trial that gains most; 0 for zeros.
QANAT_INLINE float searched_scale(const RoundingGroup& group, float largest, const float* trials, size_t num_trials) {
    const float inverse = largest == 0.0f ? 0.0f : 1.0f / largest;
    float best_gain = -1.0f, best_scale = 0.0f;
    for (size_t trial = 0; trial < num_trials; ++trial) {
        const Lanes factor = broadcast(inverse * trials[trial]);
        const auto rounded = [&](size_t i) __attribute__((always_inline)) {
            return group.nearest(mul(load(group.values + i), factor));
        };
        const float product = tree_sum(group.size, group.room, [&](size_t i) __attribute__((always_inline)) {
            return mul(group.counted(i, load(group.values + i)), rounded(i));
        });
        const float square = tree_sum(group.size, group.room, [&](size_t i) __attribute__((always_inline)) {
            const Lanes q = rounded(i);
            return group.counted(i, mul(q, q));
        });
        const float scale = square > 0.0f ? product / square : 0.0f;
        const float gain = product * scale;
        if (!(gain > best_gain)) continue;
        best_gain = gain;
        best_scale = scale;
    }
    return best_scale;
}

QANAT_INLINE float rounding_error(const RoundingGroup& group, float scale) {
    return tree_sum(group.size, group.room, [&](size_t i) __attribute__((always_inline)) {
        const Lanes off = sub(mul(group.rounded(i, scale), broadcast(scale)), load(group.values + i));
        return group.counted(i, mul(off, off));
    });
}

QANAT_INLINE float narrowed(float scale) {
    alignas(64) uint16_t narrow[kLanes];
    store_bf16(narrow, broadcast(scale));
    return peak(load_bf16(narrow));
}

// The value with the largest magnitude, the first of several; not a number if one is not finite.
QANAT_INLINE float largest_value(const float* values, size_t size, float peak) {
    for (size_t i = 0; i < size; ++i)
        if (values[i] == peak || values[i] == -peak) return values[i];
    return peak;
}

QANAT_INLINE float group_scale(const RoundingArguments& a, const RoundingGroup& group, float peak) {
    constexpr float kInt8Trials[] = {126.0f, 127.0f, 128.0f};
    constexpr float kInt4Trials[] = {7.75f, 8.25f, 7.25f, 6.75f, 8.75f};
    float scale, plain;
    if (a.is_int4) {
        // There is one more step below zero than above, which is given to the side of the largest value.
        const float largest = largest_value(group.values, group.size, peak);
        scale = narrowed(searched_scale(group, -largest, kInt4Trials, sizeof kInt4Trials / sizeof(float)));
        plain = narrowed(peak / group.highest);
    } else {
        scale = searched_scale(group, peak, kInt8Trials, sizeof kInt8Trials / sizeof(float));
        plain = peak / group.highest;
    }
    const float better = rounding_error(group, scale) < rounding_error(group, plain) ? scale : plain;
    return better == 0.0f ? 1.0f : better;  // readers take 0 for damage
}

// Tasks are groups, of all rows behind each other. `room` holds three groups, each up to a multiple of 16 values.
static void round_groups(const RoundingArguments& a, float* room, size_t first, size_t last) {
    const size_t padded = (a.group_size + kLanes - 1) / kLanes * kLanes;
    float *values = room, *importance = room + padded;
    for (size_t task = first; task < last; ++task) {
        const size_t start = task * a.group_size, input = start % a.num_inputs;
        for (size_t i = 0; i < a.group_size; i += kLanes) {
            const size_t count = lanes_left(a.group_size, i);
            store(values + i, load_any(a.x, start + i, a.is_bf16, count));
            if (a.importance) store(importance + i, load_any(a.importance, input + i, false, count));
        }
        const float peak = peak_of({values, false, 1, 0, 0}, 0, a.group_size);
        const float highest = a.is_int4 ? 7.0f : 127.0f;
        const RoundingGroup group{values, a.importance ? importance : nullptr, room + 2 * padded, a.group_size,
                                  a.is_int4 ? -8.0f : -127.0f, highest};
        // A value that is not finite gives a scale that is none.
        const float scale = a.scales[task] = peak == peak ? group_scale(a, group, peak) : peak;
        for (size_t i = 0; i < a.group_size; i += kLanes) {
            alignas(16) int8_t numbers[kLanes];
            store_int8(numbers, group.rounded(i, scale));
            const size_t count = lanes_left(a.group_size, i);
            for (size_t lane = 0; lane < count; ++lane) a.values[start + i + lane] = numbers[lane];
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
