// How the Python module's functions take their arguments, and the parts that it is put together from. Tensors come as
// addresses and sizes: no header of torch is needed, and nothing is converted on the way. Shapes, types and strides are
// checked by the Python side (qanat.kernels.native), which alone calls this.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "../ops/ops.hpp"
#include "../runtime/tape.hpp"

namespace qanat {

namespace nb = nanobind;

using Address = uintptr_t;

template <class T = void>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

// (address, is bf16, inner rows, outer stride, inner stride): see `Rows`.
using RowsTuple = nb::typed<nb::tuple, Address, bool, size_t, size_t, size_t>;

inline Rows rows_of(const RowsTuple& t) {
    return {at(nb::cast<Address>(t[0])), nb::cast<bool>(t[1]), nb::cast<size_t>(t[2]), nb::cast<size_t>(t[3]),
            nb::cast<size_t>(t[4])};
}

// (is int4, inputs, inputs of a segment, inputs of a cell, is static, its scale, its offset): what of a quantised matrix
// decides about the rows that it reads.
using FormatTuple = nb::typed<nb::tuple, bool, size_t, size_t, size_t, bool, float, float>;

inline PackedView format_of(const FormatTuple& t) {
    PackedView format{};
    format.kind = nb::cast<bool>(t[0]) ? Kind::kInt4 : Kind::kInt8;
    format.num_inputs = nb::cast<size_t>(t[1]);
    format.segment_length = nb::cast<size_t>(t[2]);
    format.cell = nb::cast<size_t>(t[3]);
    format.is_static = nb::cast<bool>(t[4]);
    format.static_scale = nb::cast<float>(t[5]);
    format.static_offset = nb::cast<float>(t[6]);
    return format;
}

// Runs an op without the interpreter's lock, and keeps it on the tape that is recorded, if one is. It captures its
// arguments by value: addresses, sizes, and pointers to matrices that live as long as the model.
template <class Op>
void submit(Op op) {
    nb::gil_scoped_release free;
    Tape::submit(std::move(op));
}

void bind_runtime(nb::module_& m);
void bind_limits(nb::module_& m);
void bind_arena(nb::module_& m);
void bind_tape(nb::module_& m);
void bind_step_inputs(nb::module_& m);
void bind_draft_inputs(nb::module_& m);
void bind_packed(nb::module_& m);
void bind_products(nb::module_& m);
void bind_shared_rows(nb::module_& m);
void bind_rowwise(nb::module_& m);
void bind_sequence(nb::module_& m);

}  // namespace qanat
