// Packed matrices and the memory that they lie in: their own, or a file's that someone else mapped.
#pragma once

#include <memory>

#include "../runtime/arena.hpp"
#include "../runtime/runtime.hpp"

namespace qanat {

// One matrix, or those of all experts behind each other, in one piece of memory.
class PackedMatrix {
public:
    // `shape` says kind and sizes. With an address the matrices are already there, and stay; otherwise memory is made
    // for them, which one of the functions below fills. Making and destroying it need the interpreter's lock.
    PackedMatrix(const PackedView& shape, size_t num_matrices, const void* address);

    // From matrices of the type itself, rows `stride` elements apart, matrices `matrix_stride`.
    void fill_plain(const void* source, size_t stride, size_t matrix_stride);
    // From contiguous int8 values [num_matrices][num_outputs][num_inputs], fp32 scales and biases (null: none).
    void fill_quantised(const int8_t* values, const float* scales, const float* bias);

    // Uses a copy of the same matrices at another address from the next op on; returns the memory that was its own.
    [[nodiscard]] std::unique_ptr<Region> move_to(const void* address);

    const PackedView& view() const { return view_; }
    PackedView view(size_t index) const {
        PackedView one = view_;
        one.data = static_cast<const char*>(view_.data) + index * view_.size_bytes();
        return one;
    }
    size_t num_matrices() const { return num_matrices_; }
    size_t size_bytes() const { return num_matrices_ * view_.size_bytes(); }

private:
    PackedView view_;
    size_t num_matrices_;
    std::unique_ptr<Region> memory_;  // null: it lies in someone else's
};

}  // namespace qanat
