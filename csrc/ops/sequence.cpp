// Ops that read what earlier rows of a request have left: attention, convolution, delta rule.
#include <algorithm>
#include <cstring>

#include "ops.hpp"

namespace qanat {

namespace {

size_t num_real(const Requests& requests) {
    size_t total = 0;
    for (size_t i = 0; i < requests.count; ++i) total += static_cast<size_t>(requests.query_lens[i]);
    return total;
}

// Requests with rows in this step, in order, into `spans`; returns how many.
size_t fill_spans(const Requests& requests, Span* spans) {
    size_t count = 0;
    int32_t row = 0;
    for (size_t i = 0; i < requests.count; ++i) {
        const int32_t length = requests.query_lens[i];
        if (length > 0) spans[count++] = {row, length, requests.state_ids[i], requests.num_computed[i] == 0};
        row += length;
    }
    return count;
}

void zero_padding(void* out, size_t row_bytes, size_t first, size_t num_rows) {
    if (first < num_rows) std::memset(static_cast<char*>(out) + first * row_bytes, 0, (num_rows - first) * row_bytes);
}

}  // namespace

void run_attention(const StoreArguments& store, AttentionArguments attention, const Requests& requests, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t own = num_real(requests), width = attention.is_out_bf16 ? 2 : 4;
    runtime.scratch().reset(2 * Scratch::size_of<int32_t>(num_rows));
    int32_t* row_requests = runtime.scratch().take<int32_t>(num_rows);
    int32_t* row_positions = runtime.scratch().take<int32_t>(num_rows);
    double num_pairs = 0;
    size_t row = 0;
    for (size_t request = 0; request < requests.count; ++request) {
        const int32_t end = requests.seq_lens[request];
        for (int32_t i = end - requests.query_lens[request]; i < end; ++i, ++row) {
            row_requests[row] = static_cast<int32_t>(request);
            row_positions[row] = i;
            num_pairs += i + 1;
        }
    }
    attention.row_requests = row_requests;
    attention.row_positions = row_positions;
    const double row_cost = double(attention.num_heads * attention.head_dim);
    runtime.pool().run(own, double(own) * row_cost, [&](size_t begin, size_t end) {
        runtime.kernels().store(store, begin, end);
    });
    // Later rows of a prompt read more keys: taken in strides, tasks give every thread early and late ones.
    const size_t num_tasks = own * attention.num_kv_heads, num_strides = std::min<size_t>(num_tasks, 64);
    runtime.pool().run(num_strides, 2 * num_pairs * row_cost, [&](size_t begin, size_t end) {
        for (size_t stride = begin; stride < end; ++stride)
            for (size_t task = stride; task < num_tasks; task += num_strides)
                runtime.kernels().attention(attention, task, task + 1);
    });
    zero_padding(attention.out, attention.num_heads * attention.head_dim * width, own, num_rows);
}

void run_conv(ConvArguments arguments, const Requests& requests, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    runtime.scratch().reset(Scratch::size_of<Span>(requests.count));
    Span* spans = runtime.scratch().take<Span>(requests.count);
    const size_t num_spans = fill_spans(requests, spans);
    arguments.spans = spans;
    const size_t own = num_real(requests), num_blocks = (arguments.num_channels + 63) / 64;
    runtime.pool().run(num_spans * num_blocks, 25 * double(own) * double(arguments.num_channels),
                       [&](size_t begin, size_t end) { runtime.kernels().conv(arguments, begin, end); });
    zero_padding(arguments.out, arguments.num_channels * (arguments.is_out_bf16 ? 2 : 4), own, num_rows);
}

void run_delta(DeltaArguments arguments, const Rows& q, const Rows& k, const Requests& requests, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t own = num_real(requests), dim = arguments.key_dim, num_units = own * arguments.num_key_heads;
    // Sized for all rows, padding too: what a tape once had is enough for every replay of it.
    const size_t most_units = num_rows * arguments.num_key_heads;
    runtime.scratch().reset(Scratch::size_of<Span>(requests.count) + 2 * Scratch::size_of<float>(most_units * dim));
    Span* spans = runtime.scratch().take<Span>(requests.count);
    const size_t num_spans = fill_spans(requests, spans);
    arguments.spans = spans;
    float* unit_q = runtime.scratch().take<float>(num_units * dim);
    float* unit_k = runtime.scratch().take<float>(num_units * dim);
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
    runtime.pool().run(num_units, 6 * double(num_units) * double(dim), [&](size_t begin, size_t end) {
        runtime.kernels().unit({q, unit_q, dim, scale}, begin, end);
        runtime.kernels().unit({k, unit_k, dim, 1.0f}, begin, end);
    });
    arguments.q = unit_q;
    arguments.k = unit_k;
    const size_t num_blocks = arguments.value_dim / 16;
    const double cost = 4 * double(own) * double(arguments.num_value_heads * dim * arguments.value_dim);
    runtime.pool().run(num_spans * arguments.num_value_heads * num_blocks, cost,
                       [&](size_t begin, size_t end) { runtime.kernels().delta(arguments, begin, end); });
    const size_t width = arguments.is_out_bf16 ? 2 : 4;
    zero_padding(arguments.out, arguments.num_value_heads * arguments.value_dim * width, own, num_rows);
}

}  // namespace qanat
