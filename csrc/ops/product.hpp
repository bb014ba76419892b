// Rows made ready for the products of one matrix, or of matrices of one shape, whatever kind they are.
#pragma once

#include "packed.hpp"

namespace qanat {

// Rows that go through all panels before the next ones: what is read of them stays in the core's second-level cache.
// Multiples of the rows that kernels take at once.
inline size_t row_chunk(const PackedView& packed) { return packed.is_quantised() ? 96 : 60; }

// Where a product's results go, and which rows it reads.
struct Target {
    void* out;
    size_t out_stride;
    bool is_out_bf16;
    const int32_t* in_rows;   // prepared row of each row; null: itself
    const int32_t* out_rows;  // row of out for each row; null: itself
};

class Prepared {
public:
    // Scratch that as many rows take.
    static size_t size_bytes(const PackedView& packed, size_t num_rows);
    // Takes its part of the scratch, but for rows that an op before this one has made ready: `shared` of `SharedRows`.
    Prepared(Runtime& runtime, const PackedView& packed, size_t num_rows, void* shared = nullptr);

    // Makes all rows ready that are not, on all threads.
    void fill(const Rows& x, size_t num_rows, const char* op = __builtin_FUNCTION()) const;
    // Makes some rows ready; each is independent of the others.
    void fill(const Rows& x, size_t begin, size_t end) const;
    // Rows and panels of a product with a matrix of that shape.
    void multiply(const PackedView& matrix, const Target& target, size_t first_row, size_t last_row, size_t first_panel,
                  size_t last_panel) const;

private:
    Runtime& runtime_;
    PackedView packed_;
    bool is_ready_;
    float* wide_ = nullptr;
    QuantisedRows quantised_{};
};

}  // namespace qanat
