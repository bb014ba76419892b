// Packed matrices, and how float ones become whole numbers.
#include "bindings.hpp"

#include <array>
#include <numeric>
#include <stdexcept>

namespace qanat {

namespace {

using Kinds = std::array<const char*, 4>;
constexpr Kinds kKinds = {"fp32", "bf16", "int8", "int4"};

PackedView shape_of(const std::string& kind, size_t num_outputs, size_t num_inputs, size_t segment_length,
                    size_t group_size, bool is_scale_bf16, bool has_bias, bool is_static, float static_scale,
                    float static_offset) {
    const size_t cell = std::gcd(segment_length, group_size);
    if (kind == "int4" && (cell == 0 || cell % 8)) throw std::invalid_argument("cells of int4 matrices are multiples of 8");
    for (size_t i = 0; i < kKinds.size(); ++i)
        if (kind == kKinds[i])
            return {nullptr, static_cast<Kind>(i), num_outputs, num_inputs, segment_length, group_size, cell, is_scale_bf16,
                    has_bias, is_static, static_scale, static_offset};
    throw std::invalid_argument("there is no kind of matrix " + kind);
}

}  // namespace

void bind_packed(nb::module_& m) {
    using namespace nb::literals;
    m.def("packed_bytes", [](const std::string& kind, size_t num_matrices, size_t num_outputs, size_t num_inputs,
                             size_t segment_length, size_t group_size, bool is_scale_bf16, bool has_bias,
                             bool is_static, float static_scale, float static_offset) {
        return num_matrices * shape_of(kind, num_outputs, num_inputs, segment_length, group_size, is_scale_bf16, has_bias,
                                       is_static, static_scale, static_offset).size_bytes();
    }, "kind"_a, "num_matrices"_a, "num_outputs"_a, "num_inputs"_a, "segment_length"_a, "group_size"_a,
       "is_scale_bf16"_a, "has_bias"_a, "is_static"_a, "static_scale"_a, "static_offset"_a,
       "What a `PackedMatrix` of this header takes.");
    nb::class_<PackedMatrix>(m, "PackedMatrix")
        .def("__init__", [](PackedMatrix* self, const std::string& kind, size_t num_matrices, size_t num_outputs,
                            size_t num_inputs, size_t segment_length, size_t group_size, bool is_scale_bf16, bool has_bias,
                            bool is_static, float static_scale, float static_offset, Address address) {
            new (self) PackedMatrix(shape_of(kind, num_outputs, num_inputs, segment_length, group_size, is_scale_bf16,
                                             has_bias, is_static, static_scale, static_offset), num_matrices, at(address));
        }, "kind"_a, "num_matrices"_a, "num_outputs"_a, "num_inputs"_a, "segment_length"_a, "group_size"_a,
           "is_scale_bf16"_a, "has_bias"_a, "is_static"_a, "static_scale"_a, "static_offset"_a, "address"_a = 0)
        .def("fill_plain", [](PackedMatrix& self, Address source, size_t stride, size_t matrix_stride) {
            nb::gil_scoped_release free;
            self.fill_plain(at(source), stride, matrix_stride);
        })
        .def("fill_quantised", [](PackedMatrix& self, Address values, Address scales, Address bias) {
            nb::gil_scoped_release free;
            self.fill_quantised(at<const int8_t>(values), at<const float>(scales), at<const float>(bias));
        })
        .def("move_to", [](PackedMatrix& self, Address address) {
            std::unique_ptr<Region> given_up;
            nb::gil_scoped_release free;
            given_up = self.move_to(at(address));
        })
        .def_prop_ro("address", [](const PackedMatrix& p) { return reinterpret_cast<Address>(p.view().data); })
        .def_prop_ro("size_bytes", &PackedMatrix::size_bytes);
    m.def("round_groups", [](Address x, bool is_bf16, bool is_int4, size_t num_inputs, size_t group_size,
                             Address importance, Address values, Address scales, size_t first, size_t last) {
        const RoundingArguments a{at(x), is_bf16, is_int4, num_inputs, group_size, at<const float>(importance),
                                  at<int8_t>(values), at<float>(scales)};
        nb::gil_scoped_release free;
        run_rounding(a, first, last);
    }, "x"_a, "is_bf16"_a, "is_int4"_a, "num_inputs"_a, "group_size"_a, "importance"_a, "values"_a, "scales"_a,
       "first"_a, "last"_a, "Rounds groups first to last of a matrix: see `qanat.quant.rounding`.");
}

}  // namespace qanat
