// Products of each row with the matrices of the experts that it chose, grouped by expert: each is read once.
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

}  // namespace

void run_experts(const Rows& x, void* shared, size_t num_rows, const int64_t* expert_ids, size_t top_k,
                 const PackedMatrix& gate_up, const PackedMatrix& down, void* out, bool is_out_bf16) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView &first = gate_up.view(), &second = down.view();
    const size_t num_slots = num_rows * top_k, inner = second.num_inputs;
    const size_t width = is_out_bf16 ? 2 : 4;
    Scratch& scratch = runtime.scratch();
    scratch.reset(Grouped::size_bytes(num_slots, gate_up.num_matrices()) +
                  (shared ? 0 : Prepared::size_bytes(first, num_rows)) + Prepared::size_bytes(second, num_slots) +
                  Scratch::size_of<Product>(gate_up.num_matrices()) + Scratch::size_of<char>(num_slots * 3 * inner * width));
    const Grouped grouped(scratch, expert_ids, num_slots, top_k, gate_up.num_matrices());
    const Prepared outer_rows(runtime, first, num_rows, shared), inner_rows(runtime, second, num_slots);
    char* pairs = scratch.take<char>(num_slots * 3 * inner * width);
    char* product = pairs + num_slots * 2 * inner * width;
    outer_rows.fill(x, num_rows);
    Product* products = scratch.take<Product>(grouped.num_chosen);
    expert_products(gate_up, grouped, outer_rows, {pairs, 2 * inner, is_out_bf16, grouped.rows, grouped.slots}, products);
    share_products(runtime, products, grouped.num_chosen);
    const Rows gate{pairs, is_out_bf16, 1, 2 * inner, 0}, up{pairs + inner * width, is_out_bf16, 1, 2 * inner, 0};
    const Rows joined{product, is_out_bf16, 1, inner, 0};
    runtime.pool().run(num_slots, double(num_slots * inner) * 20, [&](size_t begin, size_t end) {
        runtime.kernels().swiglu({gate, up, product, is_out_bf16, inner}, begin, end);
        inner_rows.fill(joined, begin, end);
    });
    expert_products(down, grouped, inner_rows, {out, second.num_outputs, is_out_bf16, grouped.slots, grouped.slots}, products);
    share_products(runtime, products, grouped.num_chosen);
}

}  // namespace qanat
