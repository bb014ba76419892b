// Products with packed matrices: plain, by experts, and rows of a packed table.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops.hpp"

namespace qanat {

namespace {

// Rows that go through all panels before the next ones: their fp32 copies stay in the core's second-level cache.
constexpr size_t kRowChunk = 60;

// Shares (chunk of rows, panel) pairs, panels fastest, among the threads.
void share_product(Runtime& runtime, const LinearArguments& arguments, size_t num_rows) {
    const size_t num_panels = arguments.packed.num_panels();
    const size_t num_chunks = (num_rows + kRowChunk - 1) / kRowChunk;
    const double cost = double(num_rows) * double(arguments.packed.num_outputs) * double(arguments.packed.num_inputs);
    runtime.pool().run(num_chunks * num_panels, cost, [&](size_t begin, size_t end) {
        while (begin < end) {
            const size_t chunk = begin / num_panels, first = begin % num_panels;
            const size_t last = std::min(num_panels, first + (end - begin));
            const size_t row = chunk * kRowChunk;
            runtime.kernels().linear(arguments, row, std::min(num_rows, row + kRowChunk), first, last);
            begin += last - first;
        }
    });
}

void widen(Runtime& runtime, const Rows& x, size_t size, float* out, size_t stride, size_t num_rows) {
    runtime.pool().run(num_rows, double(num_rows * size), [&](size_t begin, size_t end) {
        runtime.kernels().widen(x, size, out, stride, begin, end);
    });
}

Rows contiguous(const void* data, bool is_bf16, size_t size) { return {data, is_bf16, 1, size, 0}; }

}  // namespace

PackedMatrix::PackedMatrix(const void* source, size_t stride, size_t num_outputs, size_t num_inputs, bool is_bf16)
    : view_{nullptr, is_bf16, num_outputs, num_inputs, (num_inputs + kSegments - 1) / kSegments},
      buffer_(view_.num_panels() * kPanelOutputs * view_.row_length() * (is_bf16 ? 2 : 4)) {
    view_.data = buffer_.data();
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackArguments arguments{source, stride, view_, buffer_.data()};
    runtime.pool().run(view_.num_panels(), double(num_outputs) * double(num_inputs), [&](size_t begin, size_t end) {
        runtime.kernels().pack(arguments, begin, end);
    });
}

void run_linear(const Rows& x, size_t num_rows, const PackedMatrix& matrix, void* out, bool is_out_bf16) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView& packed = matrix.view();
    const size_t length = packed.row_length();
    runtime.scratch().reset(Scratch::size_of<float>(num_rows * length));
    float* wide = runtime.scratch().take<float>(num_rows * length);
    widen(runtime, x, packed.num_inputs, wide, length, num_rows);
    share_product(runtime, {wide, packed, out, packed.num_outputs, is_out_bf16, nullptr, nullptr}, num_rows);
}

void run_embedding(const int64_t* token_ids, size_t num_rows, const PackedMatrix& matrix, void* out) {
    const PackedView& packed = matrix.view();
    const size_t width = packed.is_bf16 ? 2 : 4, length = packed.segment_length;
    for (size_t row = 0; row < num_rows; ++row) {
        const size_t id = static_cast<size_t>(token_ids[row]);
        if (id >= packed.num_outputs)
            throw std::out_of_range("a token id lies outside the table of " + std::to_string(packed.num_outputs) +
                                    " rows");
        const size_t panel = id / kPanelOutputs, lane = id % kPanelOutputs;
        char* to = static_cast<char*>(out) + row * packed.num_inputs * width;
        for (size_t input = 0; input < packed.num_inputs; ++input) {
            const size_t segment = input / length, k = input % length;
            const size_t half = segment / kHalfSegments, s = segment % kHalfSegments;
            const size_t at = (((panel * 2 + half) * length + k) * kHalfSegments + s) * kPanelOutputs + lane;
            std::memcpy(to + input * width, static_cast<const char*>(packed.data) + at * width, width);
        }
    }
}

namespace {

// The (row, slot) pairs of each expert, in ascending order. Its arrays lie in scratch.
struct Grouped {
    size_t* starts;  // of each expert in `slots`, and the end
    size_t* chosen;  // experts with rows
    size_t num_chosen, num_slots;
    int32_t *slots, *rows;

    static size_t size_bytes(size_t num_slots, size_t num_experts) {
        return 2 * Scratch::size_of<size_t>(num_experts + 1) + 2 * Scratch::size_of<int32_t>(num_slots);
    }

    Grouped(Scratch& scratch, const int64_t* expert_ids, size_t count, size_t top_k, size_t num_experts)
        : starts(scratch.take<size_t>(num_experts + 1)), chosen(scratch.take<size_t>(num_experts + 1)), num_chosen(0),
          num_slots(count), slots(scratch.take<int32_t>(count)), rows(scratch.take<int32_t>(count)) {
        std::fill_n(starts, num_experts + 1, size_t(0));
        for (size_t slot = 0; slot < count; ++slot) ++starts[static_cast<size_t>(expert_ids[slot]) + 1];
        for (size_t expert = 0; expert < num_experts; ++expert) starts[expert + 1] += starts[expert];
        size_t* next = chosen;  // until the experts with rows are listed there
        std::copy_n(starts, num_experts, next);
        for (size_t slot = 0; slot < count; ++slot) {
            const size_t place = next[static_cast<size_t>(expert_ids[slot])]++;
            slots[place] = static_cast<int32_t>(slot);
            rows[place] = static_cast<int32_t>(slot / top_k);
        }
        for (size_t expert = 0; expert < num_experts; ++expert)
            if (starts[expert] < starts[expert + 1]) chosen[num_chosen++] = expert;
    }
};

// Each expert's product over the rows that chose it; tasks are (expert with rows, panel).
void share_experts(Runtime& runtime, const std::vector<const PackedMatrix*>& matrices, const Grouped& grouped,
                   LinearArguments arguments, const int32_t* in_rows, const int32_t* out_rows) {
    const PackedView& shape = matrices[0]->view();
    const size_t num_panels = shape.num_panels();
    const double cost = double(grouped.num_slots) * double(shape.num_outputs) * double(shape.num_inputs);
    runtime.pool().run(grouped.num_chosen * num_panels, cost, [&](size_t begin, size_t end) {
        while (begin < end) {
            const size_t expert = grouped.chosen[begin / num_panels], first = begin % num_panels;
            const size_t last = std::min(num_panels, first + (end - begin));
            LinearArguments own = arguments;
            own.packed = matrices[expert]->view();
            own.in_rows = in_rows + grouped.starts[expert];
            own.out_rows = out_rows + grouped.starts[expert];
            const size_t count = grouped.starts[expert + 1] - grouped.starts[expert];
            for (size_t row = 0; row < count; row += kRowChunk)
                runtime.kernels().linear(own, row, std::min(count, row + kRowChunk), first, last);
            begin += last - first;
        }
    });
}

}  // namespace

void run_experts(const Rows& x, size_t num_rows, const int64_t* expert_ids, size_t top_k,
                 const std::vector<const PackedMatrix*>& gate_up, const std::vector<const PackedMatrix*>& down,
                 void* out, bool is_out_bf16) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView &first = gate_up[0]->view(), &second = down[0]->view();
    const size_t num_slots = num_rows * top_k, inner = second.num_inputs;
    const size_t width = is_out_bf16 ? 2 : 4;
    runtime.scratch().reset(Grouped::size_bytes(num_slots, gate_up.size()) +
                            Scratch::size_of<float>(num_rows * first.row_length()) +
                            Scratch::size_of<char>(num_slots * 3 * inner * width) +
                            Scratch::size_of<float>(num_slots * second.row_length()));
    const Grouped grouped(runtime.scratch(), expert_ids, num_slots, top_k, gate_up.size());
    float* wide = runtime.scratch().take<float>(num_rows * first.row_length());
    char* pairs = runtime.scratch().take<char>(num_slots * 3 * inner * width);
    float* wide_inner = runtime.scratch().take<float>(num_slots * second.row_length());
    char* product = pairs + num_slots * 2 * inner * width;
    widen(runtime, x, first.num_inputs, wide, first.row_length(), num_rows);
    share_experts(runtime, gate_up, grouped, {wide, first, pairs, 2 * inner, is_out_bf16, nullptr, nullptr},
                  grouped.rows, grouped.slots);
    const Rows gate{pairs, is_out_bf16, 1, 2 * inner, 0}, up{pairs + inner * width, is_out_bf16, 1, 2 * inner, 0};
    runtime.pool().run(num_slots, double(num_slots * inner) * 20, [&](size_t begin, size_t end) {
        runtime.kernels().swiglu({gate, up, product, is_out_bf16, inner}, begin, end);
        runtime.kernels().widen(contiguous(product, is_out_bf16, inner), inner, wide_inner, second.row_length(), begin, end);
    });
    share_experts(runtime, down, grouped, {wide_inner, second, out, second.num_outputs, is_out_bf16, nullptr, nullptr},
                  grouped.slots, grouped.slots);
}

}  // namespace qanat
