// Rows as int8 that several products read: quantised once, by the op that makes them or by the first that needs them.
#pragma once

#include "packed.hpp"

namespace qanat {

// Memory of the rows that matrices of this format read: values, scales and sums, each from a multiple of 64 on.
size_t quantised_bytes(const PackedView& format, size_t num_rows);
QuantisedRows quantised_at(void* memory, const PackedView& format, size_t num_rows);

// Some rows.
void quantise_rows(Runtime& runtime, const Rows& x, const PackedView& format, const QuantisedRows& to, size_t begin,
                   size_t end);

// What an op leaves beside its result: the same rows, once they are rounded to its type, as int8.
struct SharedRows {
    PackedView format;
    void* memory;
};

}  // namespace qanat
