// Rows made ready for the products of one matrix, or of matrices of one shape, whatever kind they are.
#pragma once

#include "packed.hpp"

namespace qanat {

// Rows that go through all panels before the next ones: what is read of them stays in the core's second-level cache, and
// the fewer such chunks there are, the fewer times the weights are read. Multiples of the rows that kernels take at once.
constexpr size_t kChunkBytes = size_t(768) << 10, kChunkRows = 96;
inline size_t row_chunk(const PackedView& packed, size_t num_rows) {
    if (!packed.is_quantised()) return 60;
    const size_t fitting = kChunkBytes / packed.row_length() / kChunkRows * kChunkRows;
    const size_t most = fitting > kChunkRows ? fitting : kChunkRows;
    const size_t num_chunks = (num_rows + most - 1) / most;
    if (num_chunks <= 1) return most;
    return ((num_rows + num_chunks - 1) / num_chunks + kChunkRows - 1) / kChunkRows * kChunkRows;
}

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
