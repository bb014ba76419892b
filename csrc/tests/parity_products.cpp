// Cases of the products with packed matrices.
#include "parity.hpp"

namespace qanat {

namespace {

struct Shape {
    size_t num_outputs, num_inputs, num_rows;
};
constexpr Shape kShapes[] = {{16, 8, 1}, {40, 37, 2}, {33, 100, 13}, {5, 513, 7}};

std::string name_of(const char* kernel, Variant variant, Shape shape) {
    return std::string(kernel) + "," + variant.name() + "," + std::to_string(shape.num_outputs) + "x" +
           std::to_string(shape.num_inputs) + "x" + std::to_string(shape.num_rows);
}

void run_linear(const InstructionSet& set, Variant variant) {
    for (const Shape shape : kShapes)
        for (const bool is_out_bf16 : {false, true}) {
            const std::string name = name_of("linear", variant, shape) + (is_out_bf16 ? ",to_bf16" : ",to_fp32");
            Generator generator(name);
            Values weight(generator, shape.num_outputs * shape.num_inputs, variant.is_bf16, variant.has_specials);
            Values x(generator, shape.num_rows * shape.num_inputs, variant.is_bf16, variant.has_specials);
            PackedView view{};
            view.kind = variant.is_bf16 ? Kind::kBf16 : Kind::kFp32;
            view.num_outputs = shape.num_outputs;
            view.num_inputs = shape.num_inputs;
            view.segment_length = (shape.num_inputs + kSegments - 1) / kSegments;
            Values packed(view.num_panels() * kPanelOutputs * view.row_length(), variant.is_bf16);
            view.data = packed.data();
            set.kernels->pack({weight.data(), shape.num_inputs, view, packed.data()}, 0, view.num_panels());
            Values wide(shape.num_rows * view.row_length(), false), out(shape.num_rows * shape.num_outputs, is_out_bf16);
            set.kernels->widen(x.rows(1, shape.num_inputs), shape.num_inputs, wide.as<float>(), view.row_length(), 0, shape.num_rows);
            set.kernels->linear({wide.as<float>(), view, out.data(), shape.num_outputs, is_out_bf16, nullptr, nullptr}, 0,
                                shape.num_rows, 0, view.num_panels());
            Report report(set, name);
            report.add(packed);
            report.add(wide);
            report.add(out);
        }
}

}  // namespace

void product_cases(std::vector<Case>& cases) { cases.push_back({run_linear}); }

}  // namespace qanat
