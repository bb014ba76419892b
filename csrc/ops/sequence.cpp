// Ops that read what earlier rows of a request have left: attention, and convolution with delta rule.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ops.hpp"

namespace qanat {

namespace {

size_t num_real(const Requests& requests) {
    size_t total = 0;
    for (size_t i = 0; i < requests.count; ++i) total += static_cast<size_t>(requests.query_lens[i]);
    return total;
}

// A request's lines; those without any have no rows and absorb none.
Span span_of(const Requests& requests, const HeldRows& held, size_t max_held, size_t request) {
    Span span{};
    span.num_rows = requests.query_lens[request];
    span.state_id = requests.state_ids[request];
    span.is_new = requests.num_computed[request] == 0;
    if (!held.accepted) return span;
    const int32_t most = static_cast<int32_t>(max_held);
    span.first_absorbed = held.accepted[2 * request];
    span.num_absorbed = held.accepted[2 * request + 1];
    span.is_held = held.are_held[request] != 0 && span.num_rows > 0;
    const bool is_inside = span.first_absorbed >= 0 && span.num_absorbed >= 0 && span.first_absorbed + span.num_absorbed <= most;
    if (!is_inside || (span.is_held && span.num_rows > most)) throw std::out_of_range("more rows than can be held");
    if (span.is_new && (span.is_held || span.num_absorbed > 0)) throw std::out_of_range("a new request holds no rows");
    return span;
}

// The stores of one request, from `at` on; returns where those of the next one begin.
size_t take_stores(const StateStores& wanted, size_t at, size_t request, Span& span, StateStore* stores) {
    span.first_store = static_cast<int32_t>(at);
    int32_t before = 0;
    for (; at < wanted.count && wanted.wanted[3 * at] == static_cast<int32_t>(request); ++at) {
        const int32_t num_rows = wanted.wanted[3 * at + 1], state_id = wanted.wanted[3 * at + 2];
        const bool is_passed = num_rows > before && num_rows <= span.num_rows && !span.is_held;
        if (!is_passed || state_id == span.state_id) throw std::out_of_range("a state is to be kept where none passes");
        stores[at] = {span.num_absorbed + num_rows, state_id};
        before = num_rows;
        ++span.num_stores;
    }
    return at;
}

// Requests with lines, in order, into `spans`, and the span of each line; returns how many spans there are.
size_t fill_spans(const Requests& requests, const HeldRows& held, size_t max_held, const StateStores& wanted, Span* spans,
                  int32_t* line_spans, StateStore* stores) {
    size_t count = 0, num_stores = 0;
    int32_t row = 0, line = 0;
    for (size_t i = 0; i < requests.count; ++i) {
        Span span = span_of(requests, held, max_held, i);
        span.first_row = row;
        span.first_line = line;
        row += span.num_rows;
        num_stores = take_stores(wanted, num_stores, i, span, stores);
        if (span.num_lines() == 0) continue;
        for (const int32_t end = line + span.num_lines(); line < end; ++line) line_spans[line] = static_cast<int32_t>(count);
        spans[count++] = span;
    }
    if (num_stores != wanted.count) throw std::out_of_range("a state is to be kept where none passes");
    return count;
}

void zero_padding(void* out, size_t row_bytes, size_t first, size_t num_rows) {
    if (first < num_rows) std::memset(static_cast<char*>(out) + first * row_bytes, 0, (num_rows - first) * row_bytes);
}

}  // namespace

void run_heads(const HeadArguments& arguments, const Requests& requests, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t own = num_real(requests), num_tasks = own * (arguments.num_heads + arguments.num_kv_heads);
    runtime.pool().run(num_tasks, 10 * double(num_tasks) * double(arguments.head_dim),
                       [&](size_t begin, size_t end) { runtime.kernels().heads(arguments, begin, end); });
    zero_padding(arguments.out, arguments.num_heads * arguments.head_dim * (arguments.q.is_bf16 ? 2 : 4), own, num_rows);
}

void run_attention(AttentionArguments attention, const Requests& requests, size_t num_rows) {
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
    // Later rows of a prompt read more keys: taken in strides, tasks give every thread early and late ones.
    const size_t num_tasks = own * attention.num_kv_heads, num_strides = std::min<size_t>(num_tasks, 64);
    runtime.pool().run(num_strides, 2 * num_pairs * row_cost, [&](size_t begin, size_t end) {
        for (size_t stride = begin; stride < end; ++stride)
            for (size_t task = stride; task < num_tasks; task += num_strides)
                runtime.kernels().attention(attention, task, task + 1);
    });
    zero_padding(attention.out, attention.num_heads * attention.head_dim * width, own, num_rows);
}

void run_delta_net(DeltaNetArguments a, const Requests& requests, const HeldRows& held, const StateStores& wanted,
                   size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    Scratch& scratch = runtime.scratch();
    // Sized for all rows, padding too, and all held ones: what a tape once had is enough for every replay of it.
    const size_t max_lines = num_rows + (held.accepted ? requests.count * a.max_held : 0);
    const size_t keys = max_lines * a.num_key_heads * a.key_dim, gates = max_lines * a.num_value_heads;
    scratch.reset(Scratch::size_of<Span>(requests.count) + Scratch::size_of<StateStore>(wanted.count) + Scratch::size_of<int32_t>(max_lines) +
                  2 * Scratch::size_of<float>(keys) + 2 * Scratch::size_of<float>(gates) +
                  Scratch::size_of<float>(gates * a.value_dim));
    Span* spans = scratch.take<Span>(requests.count);
    int32_t* line_spans = scratch.take<int32_t>(max_lines);
    StateStore* stores = scratch.take<StateStore>(wanted.count);
    const size_t num_spans = fill_spans(requests, held, a.max_held, wanted, spans, line_spans, stores);
    const size_t num_lines = num_spans ? static_cast<size_t>(spans[num_spans - 1].first_line + spans[num_spans - 1].num_lines()) : 0;
    a.spans = spans;
    a.line_spans = line_spans;
    a.stores = stores;
    a.q = scratch.take<float>(keys);
    a.k = scratch.take<float>(keys);
    a.v = scratch.take<float>(gates * a.value_dim);
    a.log_decay = scratch.take<float>(gates);
    a.strength = scratch.take<float>(gates);
    const KernelTable& kernels = runtime.kernels();
    const double line_channels = double(num_lines) * double(a.num_channels());
    runtime.pool().run(num_lines * a.num_key_heads, 25 * line_channels,
                       [&](size_t begin, size_t end) { kernels.delta_inputs(a, begin, end); });
    const size_t num_tasks = num_spans * a.num_value_heads * (a.value_dim / 16);
    const double cost = 4 * double(num_lines) * double(a.num_value_heads * a.key_dim * a.value_dim);
    runtime.pool().run(num_tasks + num_spans, cost, [&](size_t begin, size_t end) {
        if (begin < num_tasks) kernels.delta_rule(a, begin, std::min(end, num_tasks));
        if (end > num_tasks) kernels.delta_kept(a, std::max(begin, num_tasks) - num_tasks, end - num_tasks);
    });
    const size_t width = a.is_out_bf16 ? 2 : 4;
    zero_padding(a.out, a.num_value_heads * a.value_dim * width, num_real(requests), num_rows);
}

}  // namespace qanat
