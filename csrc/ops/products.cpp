#include "products.hpp"

#include <algorithm>

namespace qanat {

namespace {

// Reading a panel takes the time of this many rows' products with it.
constexpr size_t kPanelCost = 12;
size_t panel_cost(const Product& product) {
    return (kPanelCost + product.last_row - product.first_row) * product.matrix.panel_bytes();
}

// Panels of a product that begin before a task. A panel belongs to whoever has its first task.
size_t panels_before(const Product& product, size_t task) {
    if (task <= product.start) return 0;
    const size_t tasks = task - product.start;
    return std::min(product.matrix.num_panels(), (tasks + product.panel_tasks - 1) / product.panel_tasks);
}

}  // namespace

void share_products(Runtime& runtime, Product* products, size_t count, const char* op) {
    size_t num_tasks = 0, least = SIZE_MAX;
    double cost = 0;
    // The cheapest panel is one task.
    for (const Product* product = products; product < products + count; ++product) least = std::min(least, panel_cost(*product));
    for (Product* product = products; product < products + count; ++product) {
        const PackedView& matrix = product->matrix;
        product->start = num_tasks;
        product->panel_tasks = (panel_cost(*product) + least / 2) / least;
        num_tasks += matrix.num_panels() * product->panel_tasks;
        cost += double(product->last_row - product->first_row) * double(matrix.num_outputs) * double(matrix.num_inputs);
    }
    const auto part = [&](size_t begin, size_t end) {
        for (const Product* product = products; product < products + count && product->start < end; ++product) {
            const size_t first = panels_before(*product, begin), last = panels_before(*product, end);
            const size_t chunk = row_chunk(product->matrix, product->last_row - product->first_row);
            if (first >= last) continue;
            for (size_t row = product->first_row; row < product->last_row; row += chunk)
                product->rows->multiply(product->matrix, product->target, row, std::min(product->last_row, row + chunk),
                                        first, last);
        }
    };
    runtime.pool().run(num_tasks, cost, part, op);
}

}  // namespace qanat
