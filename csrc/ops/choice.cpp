// Chooses a token of each row of scores: the most likely one, or a draw among what filters leave (rules R6 and R11).
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ops.hpp"

namespace qanat {

namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int64_t kNoToken = -1;

// The first score that has this quotient by `divisor`; there is one.
int64_t first_with(const ChoiceArguments& a, size_t row, size_t from, float peak, float divisor) {
    const float* scores = a.scores + row * a.stride;
    while (from + 1 < a.num_valid && !(scores[from] / divisor == peak)) ++from;
    return static_cast<int64_t>(from);
}

// What a filter needs beside the row: `groups` are its peaks, the others are room.
struct FilterRoom {
    const float* groups;
    float* sorted_groups;
    Candidate* candidates;
};

// A value that all candidates reach which the filters can leave; fills in the mass of the scores where it is needed. It
// may be too low, never too high, so the exact filters decide.
float lower_bound(const ChoiceArguments& a, const FilterArguments& row, const FilterRoom& room, double& mass) {
    const Draw& draw = row.draw;
    const float slack = 1e-3f + 1e-5f * std::fabs(row.peak);
    float bound = row.peak + draw.log_min_p - slack;
    const size_t top_k = static_cast<size_t>(draw.top_k), num_groups = a.num_groups();
    if (draw.top_k > 0) {
        if (top_k > num_groups) return bound;
        // At least k scores are as large as the k-th largest peak.
        std::copy(room.groups, room.groups + num_groups, room.sorted_groups);
        std::nth_element(room.sorted_groups, room.sorted_groups + (top_k - 1), room.sorted_groups + num_groups,
                         std::greater<float>());
        return std::max(bound, room.sorted_groups[top_k - 1]);
    }
    if (!(draw.top_p < 1.0)) return bound;
    mass = Runtime::get().kernels().mass(row);
    // All scores with a weight below this one have half of what top_p leaves out at most, unless rounding counts.
    const double rest = 1.0 - draw.top_p;
    if (rest < 1e-6) return bound;
    const double weight = rest * mass / (2.0 * static_cast<double>(row.num_valid));
    return std::max(bound, row.peak + static_cast<float>(std::log(weight)) - slack);
}

int64_t draw_filtered(const ChoiceArguments& a, size_t row_index, float peak, const FilterRoom& room) {
    const FilterArguments row{a.scores + row_index * a.stride, a.num_valid, a.draws[row_index], peak};
    const float temperature = row.draw.temperature;
    if (std::isinf(peak)) return peak > 0 ? first_with(a, row_index, 0, peak, temperature) : kNoToken;
    double mass = 0.0;
    const float bound = lower_bound(a, row, room, mass);
    Candidate* end = room.candidates;
    for (size_t group = 0; group < a.num_groups(); ++group) {
        if (!(room.groups[group] >= bound) || room.groups[group] == kNothing) continue;
        const size_t first = group * kChoiceGroup, last = std::min(first + kChoiceGroup, a.num_valid);
        for (size_t i = first; i < last; ++i) {
            const float value = row.scores[i] / temperature;
            if (value >= bound && value > kNothing) *end++ = {value, static_cast<int32_t>(i)};
        }
    }
    std::sort(room.candidates, end, [](const Candidate& x, const Candidate& y) {
        return x.value > y.value || (x.value == y.value && x.id < y.id);
    });
    return Runtime::get().kernels().pick(row, room.candidates, static_cast<size_t>(end - room.candidates), mass);
}

// What the blocks of a row come to.
struct RowPeak {
    size_t block = 0;
    bool is_finite = true;
};

RowPeak row_peak(const ChoiceArguments& a, size_t row) {
    RowPeak found;
    const float* peaks = a.peaks + row * a.num_blocks();
    for (size_t block = 0; block < a.num_blocks(); ++block) {
        if (peaks[block] > peaks[found.block]) found.block = block;
        found.is_finite = found.is_finite && a.poisons[row * a.num_blocks() + block] == 0.0f;
    }
    return found;
}

int64_t choose(const ChoiceArguments& a, size_t row, size_t best_block, const FilterRoom& room) {
    const size_t task = row * a.num_blocks() + best_block;
    if (a.draws && a.draws[row].is_filtered()) return draw_filtered(a, row, a.peaks[task], room);
    if (a.peaks[task] == kNothing) return kNoToken;
    if (a.draws && !a.draws[row].is_greedy()) return a.ids[task];
    return first_with(a, row, best_block * kChoiceBlock, a.peaks[task], 1.0f);
}

}  // namespace

void run_choice(ChoiceArguments a, int64_t* chosen, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t num_tasks = num_rows * a.num_blocks(), num_groups = a.num_groups();
    size_t num_filtered = 0;
    for (size_t row = 0; a.draws && row < num_rows; ++row) num_filtered += a.draws[row].is_filtered();
    const size_t filtered_rows = num_filtered > 0 ? num_rows : 0;
    Scratch& scratch = runtime.scratch();
    scratch.reset(2 * Scratch::size_of<float>(num_tasks) + Scratch::size_of<int32_t>(num_tasks) +
                  2 * Scratch::size_of<float>(filtered_rows * num_groups) +
                  Scratch::size_of<Candidate>(filtered_rows * a.num_valid));
    a.peaks = scratch.take<float>(num_tasks);
    a.poisons = scratch.take<float>(num_tasks);
    a.ids = scratch.take<int32_t>(num_tasks);
    a.group_peaks = scratch.take<float>(filtered_rows * num_groups);
    float* sorted_groups = scratch.take<float>(filtered_rows * num_groups);
    Candidate* candidates = scratch.take<Candidate>(filtered_rows * a.num_valid);
    const double num_scores = double(num_rows) * double(a.num_scores);
    runtime.pool().run(num_tasks, num_scores, [&](size_t begin, size_t end) { runtime.kernels().choice(a, begin, end); });
    const double filter_cost = 16.0 * double(num_filtered) * double(a.num_valid);
    runtime.pool().run(num_rows, filter_cost, [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            const FilterRoom room{a.group_peaks + row * num_groups, sorted_groups + row * num_groups,
                                  candidates + row * a.num_valid};
            const RowPeak found = row_peak(a, row);
            chosen[row] = choose(a, row, found.block, room);
            chosen[num_rows + row] = found.is_finite;
        }
    });
}

}  // namespace qanat
