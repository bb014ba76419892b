#include "product.hpp"

namespace qanat {

size_t Prepared::size_bytes(const PackedView& packed, size_t num_rows) {
    if (!packed.is_quantised()) return Scratch::size_of<float>(num_rows * packed.row_length());
    return Scratch::size_of<int8_t>(num_rows * packed.row_length()) +
           Scratch::size_of<float>(num_rows * kSegments) + Scratch::size_of<int32_t>(num_rows * packed.num_sums());
}

Prepared::Prepared(Runtime& runtime, const PackedView& packed, size_t num_rows) : runtime_(runtime), packed_(packed) {
    Scratch& scratch = runtime.scratch();
    if (packed.is_quantised())
        quantised_ = {scratch.take<int8_t>(num_rows * packed.row_length()), scratch.take<float>(num_rows * kSegments),
                      scratch.take<int32_t>(num_rows * packed.num_sums())};
    else
        wide_ = scratch.take<float>(num_rows * packed.row_length());
}

void Prepared::fill(const Rows& x, size_t begin, size_t end) const {
    if (packed_.is_quantised())
        runtime_.quantised().quantise({x, packed_, quantised_}, begin, end);
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
