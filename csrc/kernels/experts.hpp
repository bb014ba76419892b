// Mixture of experts around the products: which experts a row takes, and how their results are added (rule R11).
#pragma once

#include "../lanes/functions.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

// Softmax over all experts, then the largest, ordered by (value descending, id ascending). `probabilities` of a row lie
// in scratch + row * num_experts.
static void route_row(const RouteArguments& a, size_t row) {
    float* probabilities = a.scratch + row * a.num_experts;
    const size_t start = a.logits.start(row);
    float highest = -__builtin_inff();
    for (size_t i = 0; i < a.num_experts; ++i) {
        probabilities[i] = scalar_any(a.logits.data, start + i, a.logits.is_bf16);
        highest = probabilities[i] > highest ? probabilities[i] : highest;
    }
    Lanes sums = zero();
    for (size_t i = 0; i < a.num_experts; i += kLanes) {
        const size_t count = lanes_left(a.num_experts, i);
        store_some(probabilities + i, exponential(sub(load_some(probabilities + i, count), broadcast(highest))), count);
        sums = add(sums, load_some(probabilities + i, count));
    }
    const float total = sum(sums);
    for (size_t i = 0; i < a.num_experts; ++i) probabilities[i] = probabilities[i] / total;
    float* weights = a.weights + row * a.top_k;
    int64_t* ids = a.expert_ids + row * a.top_k;
    float chosen_total = 0.0f;
    for (size_t slot = 0; slot < a.top_k; ++slot) {
        size_t best = 0;
        float value = -2.0f;  // taken ones count as -1; one that is not a number is below all
        for (size_t i = 0; i < a.num_experts; ++i)
            if (probabilities[i] > value) {
                best = i;
                value = probabilities[i];
            }
        weights[slot] = probabilities[best];
        ids[slot] = static_cast<int64_t>(best);
        chosen_total = chosen_total + weights[slot];
        probabilities[best] = -1.0f;
    }
    if (a.is_renormalised)
        for (size_t slot = 0; slot < a.top_k; ++slot) weights[slot] = weights[slot] / chosen_total;
}

static void route(const RouteArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) route_row(a, row);
}

// In the row's own order of experts, then the shared one.
static void combine(const CombineArguments& a, size_t first, size_t last) {
    for (size_t row = first; row < last; ++row) {
        const Lanes gate = a.gate ? sigmoid(broadcast(scalar_any(a.gate, row, a.is_bf16))) : zero();
        for (size_t i = 0; i < a.size; i += kLanes) {
            const size_t count = lanes_left(a.size, i);
            Lanes total = zero();
            for (size_t slot = 0; slot < a.top_k; ++slot) {
                const size_t at = row * a.top_k + slot;
                total = fma(broadcast(a.weights[at]), load_any(a.expert_out, at * a.size + i, a.is_bf16, count), total);
            }
            if (a.shared) total = fma(gate, load_any(a.shared, row * a.size + i, a.is_bf16, count), total);
            store_any(a.out, row * a.size + i, a.is_bf16, total, count);
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
