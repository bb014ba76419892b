// Products of the same rows with packed matrices.
#include <algorithm>
#include <new>

#include "ops.hpp"
#include "products.hpp"

namespace qanat {

namespace {

bool read_the_same(const PackedView& a, const PackedView& b) {
    if (a.num_inputs != b.num_inputs || a.row_length() != b.row_length()) return false;
    if (!a.is_quantised() || !b.is_quantised()) return a.is_quantised() == b.is_quantised();
    return a.kind == b.kind && a.segment_length == b.segment_length && a.cell == b.cell && a.is_static == b.is_static &&
           a.static_scale == b.static_scale && a.static_offset == b.static_offset;
}

// Of each matrix, the index of the first that reads rows as it does.
size_t first_alike(const std::vector<LinearTarget>& targets, size_t index) {
    for (size_t i = 0; i < index; ++i)
        if (targets[i].shared == targets[index].shared && read_the_same(targets[i].matrix->view(), targets[index].matrix->view()))
            return i;
    return index;
}

size_t prepared_bytes(const std::vector<LinearTarget>& targets, size_t num_rows) {
    size_t size_bytes = Scratch::size_of<Prepared>(targets.size());
    for (size_t i = 0; i < targets.size(); ++i)
        if (!targets[i].shared && first_alike(targets, i) == i)
            size_bytes += Prepared::size_bytes(targets[i].matrix->view(), num_rows);
    return size_bytes;
}

// Makes the rows ready for each matrix, once for all that read them alike.
const Prepared* prepare(Runtime& runtime, const Rows& x, size_t num_rows, const std::vector<LinearTarget>& targets,
                        const char* op = __builtin_FUNCTION()) {
    Prepared* prepared = runtime.scratch().take<Prepared>(targets.size());
    size_t num_values = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
        const size_t first = first_alike(targets, i);
        const PackedView& view = targets[i].matrix->view();
        if (first < i) new (prepared + i) Prepared(prepared[first]);
        else new (prepared + i) Prepared(runtime, view, num_rows, targets[i].shared);
        if (first == i && !targets[i].shared) num_values += num_rows * view.num_inputs;
    }
    if (num_values == 0) return prepared;
    const auto part = [&](size_t begin, size_t end) {
        for (size_t i = 0; i < targets.size(); ++i)
            if (!targets[i].shared && first_alike(targets, i) == i) prepared[i].fill(x, begin, end);
    };
    runtime.pool().run(num_rows, double(num_values), part, op);
    return prepared;
}

}  // namespace

void run_linear(const Rows& x, size_t num_rows, const std::vector<LinearTarget>& targets) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    size_t num_products = 0;
    for (const LinearTarget& target : targets) {
        const size_t chunk = row_chunk(target.matrix->view(), num_rows);
        num_products += (num_rows + chunk - 1) / chunk;
    }
    runtime.scratch().reset(prepared_bytes(targets, num_rows) + Scratch::size_of<Product>(num_products));
    const Prepared* prepared = prepare(runtime, x, num_rows, targets);
    Product* products = runtime.scratch().take<Product>(num_products);
    size_t count = 0;
    // All panels for some rows, then for the next ones: the rows stay in a cache.
    for (size_t i = 0; i < targets.size(); ++i) {
        const PackedView& view = targets[i].matrix->view();
        const size_t chunk = row_chunk(view, num_rows);
        for (size_t row = 0; row < num_rows; row += chunk)
            products[count++] = {view, prepared + i, {targets[i].out, view.num_outputs, targets[i].is_out_bf16, nullptr, nullptr},
                                 row, std::min(num_rows, row + chunk), 0, 0};
    }
    share_products(runtime, products, count);
}

}  // namespace qanat
