#include "shared_rows.hpp"

#include "ops.hpp"

namespace qanat {

size_t quantised_bytes(const PackedView& format, size_t num_rows) {
    return Scratch::size_of<int8_t>(num_rows * format.row_length()) + Scratch::size_of<float>(num_rows * kSegments) +
           Scratch::size_of<int32_t>(num_rows * format.num_sums());
}

QuantisedRows quantised_at(void* memory, const PackedView& format, size_t num_rows) {
    char* values = static_cast<char*>(memory);
    char* scales = values + Scratch::size_of<int8_t>(num_rows * format.row_length());
    char* sums = scales + Scratch::size_of<float>(num_rows * kSegments);
    return {reinterpret_cast<int8_t*>(values), reinterpret_cast<float*>(scales), reinterpret_cast<int32_t*>(sums)};
}

void quantise_rows(Runtime& runtime, const Rows& x, const PackedView& format, const QuantisedRows& to, size_t begin,
                   size_t end) {
    const size_t num_segments = format.num_segments();
    runtime.quantised().quantise({x, format, to}, begin * num_segments, end * num_segments);
}

namespace {

constexpr double kQuantiseCost = 4;      // multiply-adds of a value, roughly
constexpr double kExponentialCost = 20;

// A contiguous result of an op, to be quantised.
Rows result_rows(const void* out, bool is_bf16, size_t size) { return {out, is_bf16, 1, size, 0}; }

char* moved(void* data, bool is_bf16, size_t by) { return static_cast<char*>(data) + by * (is_bf16 ? 2 : 4); }

}  // namespace

void run_quantise(const Rows& x, size_t num_rows, const SharedRows& shared) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView& format = shared.format;
    const QuantisedRows to = quantised_at(shared.memory, format, num_rows);
    runtime.pool().run(num_rows, kQuantiseCost * double(num_rows) * double(format.num_inputs),
                       [&](size_t begin, size_t end) { quantise_rows(runtime, x, format, to, begin, end); });
}

void run_quantised_norm(const NormArguments& arguments, size_t num_rows, const SharedRows& shared) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView& format = shared.format;
    const QuantisedRows to = quantised_at(shared.memory, format, num_rows);
    const Rows normed = result_rows(arguments.out, arguments.is_out_bf16, arguments.size);
    const double cost = (4 + kQuantiseCost) * double(num_rows) * double(arguments.size);
    runtime.pool().run(num_rows, cost, [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row) {
            runtime.kernels().add_rms_norm(arguments, row, row + 1);
            quantise_rows(runtime, normed, format, to, row, row + 1);
        }
    });
}

void run_quantised_gated_norm(const NormArguments& arguments, size_t num_rows, const SharedRows& shared) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView& format = shared.format;
    const size_t num_heads = format.num_inputs / arguments.size, num_segments = format.num_segments();
    // A task is a row, or a segment of one where segments hold whole heads.
    const bool is_cut = format.segment_length % arguments.size == 0;
    const size_t num_parts = is_cut ? num_segments : 1, segments = is_cut ? 1 : num_segments;
    const size_t heads = is_cut ? format.segment_length / arguments.size : num_heads;
    const QuantisedRows to = quantised_at(shared.memory, format, num_rows);
    const Rows normed = result_rows(arguments.out, arguments.is_out_bf16, format.num_inputs);
    const double cost = (kExponentialCost + kQuantiseCost) * double(num_rows) * double(format.num_inputs);
    runtime.pool().run(num_rows * num_parts, cost, [&](size_t begin, size_t end) {
        for (size_t task = begin; task < end; ++task) {
            const size_t row = task / num_parts, first = task % num_parts * heads;
            const size_t last = first + heads < num_heads ? first + heads : num_heads;
            runtime.kernels().gated_rms_norm(arguments, row * num_heads + first, row * num_heads + last);
            runtime.quantised().quantise({normed, format, to}, task * segments, (task + 1) * segments);
        }
    });
}

void run_quantised_swiglu(const SwigluArguments& arguments, size_t num_rows, const SharedRows& shared) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView& format = shared.format;
    const size_t num_segments = format.num_segments(), length = format.segment_length, size = arguments.size;
    const QuantisedRows to = quantised_at(shared.memory, format, num_rows);
    const Rows product = result_rows(arguments.out, arguments.is_out_bf16, size);
    const auto cut = [](const Rows& x, size_t row, size_t first) {
        return result_rows(static_cast<const char*>(x.data) + (x.start(row) + first) * (x.is_bf16 ? 2 : 4), x.is_bf16, 0);
    };
    const double cost = (kExponentialCost + kQuantiseCost) * double(num_rows) * double(size);
    // A task is a segment of a row.
    runtime.pool().run(num_rows * num_segments, cost, [&](size_t begin, size_t end) {
        for (size_t task = begin; task < end; ++task) {
            const size_t row = task / num_segments, first = task % num_segments * length;
            const size_t count = size - first < length ? size - first : length;
            runtime.kernels().swiglu({cut(arguments.gate, row, first), cut(arguments.up, row, first),
                                      moved(arguments.out, arguments.is_out_bf16, row * size + first),
                                      arguments.is_out_bf16, count}, 0, 1);
            runtime.quantised().quantise({product, format, to}, task, task + 1);
        }
    });
}

}  // namespace qanat
