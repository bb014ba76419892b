// Products of each row with the matrices of the experts that it chose, grouped by expert: each is read once. The expert
// that all rows share and the sum of what they give come along where the layer wants it.
#include <algorithm>
#include <cstring>

#include "ops.hpp"
#include "products.hpp"

namespace qanat {

namespace {

// The (row, slot) pairs of each chosen expert, in ascending order. Lies in scratch.
struct Grouped {
    size_t num_chosen = 0;
    int32_t* chosen;       // experts with rows
    int32_t* starts;       // of each chosen expert in `slots`, and the end
    int32_t *slots, *rows;

    static size_t size_bytes(size_t num_slots, size_t num_experts) {
        return 3 * Scratch::size_of<int32_t>(num_experts + 1) + 2 * Scratch::size_of<int32_t>(num_slots);
    }

    Grouped(Scratch& scratch, const int64_t* expert_ids, size_t num_slots, size_t top_k, size_t num_experts)
        : chosen(scratch.take<int32_t>(num_experts + 1)),
          starts(scratch.take<int32_t>(num_experts + 1)),
          slots(scratch.take<int32_t>(num_slots)),
          rows(scratch.take<int32_t>(num_slots)) {
        int32_t* next = scratch.take<int32_t>(num_experts + 1);
        std::memset(next, 0, num_experts * sizeof(int32_t));
        for (size_t slot = 0; slot < num_slots; ++slot) ++next[expert_ids[slot]];
        int32_t start = 0;
        for (size_t expert = 0; expert < num_experts; ++expert) {
            const int32_t count = next[expert];
            next[expert] = start;
            if (count == 0) continue;
            chosen[num_chosen] = static_cast<int32_t>(expert);
            starts[num_chosen++] = start;
            start += count;
        }
        starts[num_chosen] = start;
        for (size_t slot = 0; slot < num_slots; ++slot) {
            const int32_t place = next[expert_ids[slot]]++;
            slots[place] = static_cast<int32_t>(slot);
            rows[place] = static_cast<int32_t>(slot / top_k);
        }
    }
};

// The product of each chosen expert with its rows; returned is where the next ones go.
Product* expert_products(const PackedMatrix& stack, const Grouped& grouped, const Prepared& prepared, const Target& target,
                         Product* products) {
    for (size_t group = 0; group < grouped.num_chosen; ++group)
        *products++ = {stack.view(static_cast<size_t>(grouped.chosen[group])), &prepared, target,
                       static_cast<size_t>(grouped.starts[group]), static_cast<size_t>(grouped.starts[group + 1]), 0, 0};
    return products;
}

// Rows between the two products of an expert: what the first one gave, and memory for the gated units.
struct Inside {
    Rows gate, up;
    char* units;
    size_t inner, num_rows;
    const Prepared* rows;  // the units, as the second product reads them
};

// The gated units of some rows, made ready.
void fill_units(Runtime& runtime, const Inside& inside, bool is_bf16, size_t first, size_t last) {
    if (first >= last) return;
    runtime.kernels().swiglu({inside.gate, inside.up, inside.units, is_bf16, inside.inner}, first, last);
    inside.rows->fill({inside.units, is_bf16, 1, inside.inner, 0}, first, last);
}

void share_units(Runtime& runtime, const Inside& routed, const Inside& shared, bool is_bf16,
                 const char* op = __builtin_FUNCTION()) {
    const size_t num_routed = routed.num_rows;
    const double cost = 20 * double(num_routed * routed.inner + shared.num_rows * shared.inner);
    const auto part = [&](size_t begin, size_t end) {
        fill_units(runtime, routed, is_bf16, begin, std::min(end, num_routed));
        fill_units(runtime, shared, is_bf16, std::max(begin, num_routed) - num_routed, std::max(end, num_routed) - num_routed);
    };
    runtime.pool().run(num_routed + shared.num_rows, cost, part, op);
}

}  // namespace

void run_experts(const Rows& x, size_t num_rows, const ExpertArguments& a) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView &first = a.gate_up->view(), &second = a.down->view();
    const PackedView& shared_down = a.shared_down ? a.shared_down->view() : second;
    const bool is_bf16 = a.is_out_bf16;
    const size_t width = is_bf16 ? 2 : 4, inner = second.num_inputs, outer = second.num_outputs;
    const size_t num_slots = num_rows * a.top_k, num_shared = a.shared_down ? num_rows : 0;
    const size_t pair_bytes = num_slots * 2 * inner * width, unit_bytes = num_slots * inner * width;
    const size_t shared_unit_bytes = num_shared * shared_down.num_inputs * width;
    const size_t result_bytes = a.weights ? num_slots * outer * width : 0, shared_bytes = num_shared * outer * width;
    const size_t num_experts = a.gate_up->num_matrices();
    Scratch& scratch = runtime.scratch();
    scratch.reset(Grouped::size_bytes(num_slots, num_experts) + (a.ready_rows ? 0 : Prepared::size_bytes(first, num_rows)) +
                  Prepared::size_bytes(second, num_slots) + Prepared::size_bytes(shared_down, num_shared) +
                  Scratch::size_of<Product>(num_experts + 1) + Scratch::size_of<char>(pair_bytes) +
                  Scratch::size_of<char>(unit_bytes) + Scratch::size_of<char>(shared_unit_bytes) +
                  Scratch::size_of<char>(result_bytes) + Scratch::size_of<char>(shared_bytes));
    const Grouped grouped(scratch, a.expert_ids, num_slots, a.top_k, num_experts);
    const Prepared outer_rows(runtime, first, num_rows, a.ready_rows), inner_rows(runtime, second, num_slots);
    const Prepared shared_rows(runtime, shared_down, num_shared);
    Product* products = scratch.take<Product>(num_experts + 1);
    char* pairs = scratch.take<char>(pair_bytes);
    const Inside routed{{pairs, is_bf16, 1, 2 * inner, 0}, {pairs + inner * width, is_bf16, 1, 2 * inner, 0},
                        scratch.take<char>(unit_bytes), inner, num_slots, &inner_rows};
    const Inside shared{a.shared_gate, a.shared_up, scratch.take<char>(shared_unit_bytes), shared_down.num_inputs,
                        num_shared, &shared_rows};
    void* results = a.weights ? scratch.take<char>(result_bytes) : a.out;
    void* shared_results = a.shared_down ? scratch.take<char>(shared_bytes) : nullptr;

    outer_rows.fill(x, num_rows);
    const Product* end = expert_products(*a.gate_up, grouped, outer_rows,
                                         {pairs, 2 * inner, is_bf16, grouped.rows, grouped.slots}, products);
    share_products(runtime, products, static_cast<size_t>(end - products));
    share_units(runtime, routed, shared, is_bf16);
    Product* last = expert_products(*a.down, grouped, inner_rows, {results, outer, is_bf16, grouped.slots, grouped.slots}, products);
    if (num_shared)
        *last++ = {shared_down, &shared_rows, {shared_results, outer, is_bf16, nullptr, nullptr}, 0, num_shared, 0, 0};
    share_products(runtime, products, static_cast<size_t>(last - products));
    if (!a.weights) return;
    const CombineArguments sums{results, is_bf16, a.weights, shared_results, a.shared_scale, a.out, outer, a.top_k};
    runtime.pool().run(num_rows, double((num_slots + num_shared) * outer),
                       [&](size_t begin, size_t stop) { runtime.kernels().combine(sums, begin, stop); });
}

}  // namespace qanat
