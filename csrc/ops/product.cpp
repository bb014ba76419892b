#include "product.hpp"

#include "shared_rows.hpp"

namespace qanat {

size_t Prepared::size_bytes(const PackedView& packed, size_t num_rows) {
    if (!packed.is_quantised()) return Scratch::size_of<float>(num_rows * packed.row_length());
    return quantised_bytes(packed, num_rows);
}

Prepared::Prepared(Runtime& runtime, const PackedView& packed, size_t num_rows, void* shared)
    : runtime_(runtime), packed_(packed), is_ready_(shared != nullptr) {
    void* memory = is_ready_ ? shared : runtime.scratch().take<char>(size_bytes(packed, num_rows));
    if (packed.is_quantised()) quantised_ = quantised_at(memory, packed, num_rows);
    else wide_ = static_cast<float*>(memory);
}

void Prepared::fill(const Rows& x, size_t num_rows, const char* op) const {
    if (is_ready_) return;
    const auto part = [&](size_t begin, size_t end) { fill(x, begin, end); };
    runtime_.pool().run(num_rows, double(num_rows * packed_.num_inputs), part, op);
}

void Prepared::fill(const Rows& x, size_t begin, size_t end) const {
    if (packed_.is_quantised())
        quantise_rows(runtime_, x, packed_, quantised_, begin, end);
    else
        runtime_.kernels().widen(x, packed_.num_inputs, wide_, packed_.row_length(), begin, end);
}

void Prepared::multiply(const PackedView& matrix, const Target& target, size_t first_row, size_t last_row,
                        size_t first_panel, size_t last_panel) const {
    if (packed_.is_quantised()) {
        const QuantisedArguments arguments{quantised_, matrix, target.out, target.out_stride, target.is_out_bf16,
                                           target.in_rows, target.out_rows};
        runtime_.quantised().of(packed_.kind).linear(arguments, first_row, last_row, first_panel, last_panel);
        return;
    }
    const LinearArguments arguments{wide_, matrix, target.out, target.out_stride, target.is_out_bf16, target.in_rows,
                                    target.out_rows};
    runtime_.kernels().linear(arguments, first_row, last_row, first_panel, last_panel);
}

}  // namespace qanat
