#include "packed.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops.hpp"

namespace qanat {

namespace {

// Matrices stand close behind each other in slabs: huge pages for each of its own would leave the last one's rest unused,
// or unread on small pages.
constexpr size_t kSlabBytes = size_t(64) << 20;

std::unique_ptr<Region> take_memory(size_t size_bytes) {
    static std::weak_ptr<Arena> last_slab;
    std::shared_ptr<Arena> slab = last_slab.lock();
    void* data = slab ? slab->take(size_bytes) : nullptr;
    if (!data) {
        slab = std::make_shared<Arena>(std::max(size_bytes, kSlabBytes));
        data = slab->take(size_bytes);
        if (size_bytes < kSlabBytes) last_slab = slab;
    }
    return std::make_unique<Region>(slab, data, size_bytes);
}

}  // namespace

PackedMatrix::PackedMatrix(const PackedView& shape, size_t num_matrices, const void* address)
    : view_(shape), num_matrices_(num_matrices) {
    if (!address) memory_ = take_memory(num_matrices * shape.size_bytes());
    view_.data = address ? address : memory_->data;
}

namespace {

// Calls pack(matrix, first panel, last panel) on all threads.
template <class Pack>
void share_panels(Runtime& runtime, const PackedMatrix& matrix, const Pack& pack) {
    const size_t num_panels = matrix.view().num_panels();
    runtime.pool().run(matrix.num_matrices() * num_panels, double(matrix.size_bytes()), [&](size_t begin, size_t end) {
        while (begin < end) {
            const size_t first = begin % num_panels, last = std::min(num_panels, first + (end - begin));
            pack(begin / num_panels, first, last);
            begin += last - first;
        }
    });
}

}  // namespace

std::unique_ptr<Region> PackedMatrix::move_to(const void* address) {
    std::lock_guard<std::mutex> turn(Runtime::get().turn());
    view_.data = address;
    return std::move(memory_);
}

void PackedMatrix::fill_plain(const void* source, size_t stride, size_t matrix_stride) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t width = view_.is_bf16() ? 2 : 4;
    share_panels(runtime, *this, [&](size_t index, size_t first, size_t last) {
        const char* from = static_cast<const char*>(source) + index * matrix_stride * width;
        void* to = static_cast<char*>(memory_->data) + index * view_.size_bytes();
        runtime.kernels().pack({from, stride, view_, to}, first, last);
    });
}

void PackedMatrix::fill_quantised(const int8_t* values, const float* scales, const float* bias) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t num_scales = view_.num_outputs * (view_.kind == Kind::kInt4 ? view_.num_inputs / view_.group_size : 1);
    share_panels(runtime, *this, [&](size_t index, size_t first, size_t last) {
        const QuantisedPackArguments arguments{values + index * view_.num_outputs * view_.num_inputs,
                                               scales + index * num_scales,
                                               bias ? bias + index * view_.num_outputs : nullptr,
                                               view_,
                                               static_cast<char*>(memory_->data) + index * view_.size_bytes()};
        runtime.quantised().of(view_.kind).pack(arguments, first, last);
    });
}

namespace {

// One row of a table of plain numbers.
void copy_row(const PackedView& packed, size_t id, char* to) {
    const size_t width = packed.is_bf16() ? 2 : 4, length = packed.segment_length;
    const size_t panel = id / kPanelOutputs, lane = id % kPanelOutputs, interleaved = packed.num_interleaved();
    for (size_t input = 0; input < packed.num_inputs; ++input) {
        const size_t segment = input / length, k = input % length;
        const size_t s = segment % interleaved, first = panel * packed.num_segments() + segment - s;
        const size_t at = (first * length + k * interleaved + s) * kPanelOutputs + lane;
        std::memcpy(to + input * width, static_cast<const char*>(packed.data) + at * width, width);
    }
}

}  // namespace

void run_embedding(const int64_t* token_ids, size_t num_rows, const PackedMatrix& matrix, void* out, bool is_out_bf16) {
    const PackedView& packed = matrix.view();
    for (size_t row = 0; row < num_rows; ++row)
        if (static_cast<size_t>(token_ids[row]) >= packed.num_outputs)
            throw std::out_of_range("a token id lies outside the table of " + std::to_string(packed.num_outputs) +
                                    " rows");
    if (packed.is_quantised()) {
        Runtime& runtime = Runtime::get();
        std::lock_guard<std::mutex> turn(runtime.turn());
        const TableArguments arguments{packed, token_ids, out, is_out_bf16};
        runtime.pool().run(num_rows, double(num_rows * packed.num_inputs) * 4, [&](size_t begin, size_t end) {
            runtime.quantised().of(packed.kind).rows(arguments, begin, end);
        });
        return;
    }
    const size_t row_bytes = packed.num_inputs * (packed.is_bf16() ? 2 : 4);
    for (size_t row = 0; row < num_rows; ++row)
        copy_row(packed, static_cast<size_t>(token_ids[row]), static_cast<char*>(out) + row * row_bytes);
}

}  // namespace qanat
