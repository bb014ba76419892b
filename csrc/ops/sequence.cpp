// Ops that read what earlier rows of a request have left: attention, convolution, delta rule.
#include <algorithm>
#include <cstring>

#include "ops.hpp"

namespace qanat {

namespace {

// Requests with rows in this step, in order.
std::vector<Span> spans_of(const int32_t* state_ids, const int32_t* num_computed, const std::vector<int32_t>& query_lens) {
    std::vector<Span> spans;
    int32_t row = 0;
    for (size_t request = 0; request < query_lens.size(); ++request) {
        if (query_lens[request] > 0)
            spans.push_back({row, query_lens[request], state_ids[request], num_computed[request] == 0});
        row += query_lens[request];
    }
    return spans;
}

size_t num_real(const std::vector<int32_t>& query_lens) {
    size_t total = 0;
    for (const int32_t length : query_lens) total += static_cast<size_t>(length);
    return total;
}

void zero_padding(void* out, size_t row_bytes, size_t first, size_t num_rows) {
    if (first < num_rows) std::memset(static_cast<char*>(out) + first * row_bytes, 0, (num_rows - first) * row_bytes);
}

}  // namespace

void run_attention(StoreArguments store, AttentionArguments attention, const std::vector<int32_t>& query_lens,
                   const std::vector<int32_t>& seq_lens, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t own = num_real(query_lens), width = attention.is_out_bf16 ? 2 : 4;
    std::vector<int32_t> requests, positions;
    requests.reserve(own);
    positions.reserve(own);
    double num_pairs = 0;
    for (size_t request = 0; request < query_lens.size(); ++request)
        for (int32_t i = seq_lens[request] - query_lens[request]; i < seq_lens[request]; ++i) {
            requests.push_back(static_cast<int32_t>(request));
            positions.push_back(i);
            num_pairs += i + 1;
        }
    attention.row_requests = requests.data();
    attention.row_positions = positions.data();
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

void run_conv(ConvArguments arguments, const int32_t* state_ids, const int32_t* num_computed,
              const std::vector<int32_t>& query_lens, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const std::vector<Span> spans = spans_of(state_ids, num_computed, query_lens);
    arguments.spans = spans.data();
    const size_t own = num_real(query_lens), num_blocks = (arguments.num_channels + 63) / 64;
    runtime.pool().run(spans.size() * num_blocks, 25 * double(own) * double(arguments.num_channels),
                       [&](size_t begin, size_t end) { runtime.kernels().conv(arguments, begin, end); });
    zero_padding(arguments.out, arguments.num_channels * (arguments.is_out_bf16 ? 2 : 4), own, num_rows);
}

void run_delta(DeltaArguments arguments, const Rows& q, const Rows& k, const int32_t* state_ids,
               const int32_t* num_computed, const std::vector<int32_t>& query_lens, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const std::vector<Span> spans = spans_of(state_ids, num_computed, query_lens);
    arguments.spans = spans.data();
    const size_t own = num_real(query_lens), dim = arguments.key_dim, num_units = own * arguments.num_key_heads;
    runtime.scratch().reset(2 * Scratch::size_of<float>(num_units * dim));
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
    runtime.pool().run(spans.size() * arguments.num_value_heads * num_blocks, cost,
                       [&](size_t begin, size_t end) { runtime.kernels().delta(arguments, begin, end); });
    const size_t width = arguments.is_out_bf16 ? 2 : 4;
    zero_padding(arguments.out, arguments.num_value_heads * arguments.value_dim * width, own, num_rows);
}

}  // namespace qanat
