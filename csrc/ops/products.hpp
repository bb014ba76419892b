// Several products as one job of the threads.
#pragma once

#include "product.hpp"

namespace qanat {

// Some rows with one matrix.
struct Product {
    PackedView matrix;
    const Prepared* rows;
    Target target;
    size_t first_row, last_row;
    size_t start, panel_tasks;  // set by `share_products`: where its tasks begin, and how many a panel is
};

// Threads share the panels of all products by what they cost, in the order of the list. What a thread takes of a product it
// computes for all of the product's rows.
void share_products(Runtime& runtime, Product* products, size_t count, const char* op = __builtin_FUNCTION());

}  // namespace qanat
