// Cases of the products with int4 matrices: cells and groups of several sizes, scales of both types, and the weights and
// activations at the edges.
#include "parity.hpp"

namespace qanat {

namespace {

struct Shape {
    size_t num_outputs, num_inputs, num_rows, segment_length, group_size, cell;
};
constexpr Shape kShapes[] = {{16, 256, 1, 32, 32, 32}, {40, 96, 2, 32, 32, 32},     {33, 512, 13, 64, 128, 64},
                             {5, 80, 7, 16, 16, 16},   {19, 2048, 9, 256, 256, 256}, {17, 120, 5, 40, 40, 40}};

PackedView int4_view(Shape shape, bool is_scale_bf16) {
    PackedView view{};
    view.kind = Kind::kInt4;
    view.num_outputs = shape.num_outputs;
    view.num_inputs = shape.num_inputs;
    view.segment_length = shape.segment_length;
    view.group_size = shape.group_size;
    view.cell = shape.cell;
    view.is_scale_bf16 = is_scale_bf16;
    return view;
}

// Products of rows that are quantised already; what was packed and the product go into the report.
void multiply(const InstructionSet& set, Report& report, Variant variant, PackedView view, const QuantisedRows& rows,
              size_t num_rows, Generator& generator) {
    std::vector<int8_t> weights(view.num_outputs * view.num_inputs);
    for (int8_t& weight : weights)
        weight = static_cast<int8_t>(variant.has_specials ? (generator.below(4) ? -8 : 7)
                                                          : static_cast<int>(generator.below(16)) - 8);
    Values scales(generator, view.num_outputs * view.num_inputs / view.group_size, false);
    std::vector<uint8_t> packed(view.size_bytes());
    set.quantised->int4.pack({weights.data(), scales.as<float>(), nullptr, view, packed.data()}, 0, view.num_panels());
    view.data = packed.data();
    Values out(num_rows * view.num_outputs, variant.is_bf16), table(2 * view.num_inputs, variant.is_bf16);
    set.quantised->int4.linear({rows, view, out.data(), view.num_outputs, variant.is_bf16, nullptr, nullptr}, 0, num_rows,
                               0, view.num_panels());
    const int64_t ids[] = {0, static_cast<int64_t>(view.num_outputs) - 1};
    set.quantised->int4.rows({view, ids, table.data(), variant.is_bf16}, 0, 2);
    for (const uint8_t byte : packed) report.add(byte);
    report.add(out);
    report.add(table);
}

void run_int4_shape(const InstructionSet& set, Variant variant, Shape shape, bool is_scale_bf16) {
    const std::string name = "int4," + variant.name() + "," + std::to_string(shape.num_outputs) + "x" +
                             std::to_string(shape.num_inputs) + "x" + std::to_string(shape.num_rows) + "," +
                             std::to_string(shape.group_size) + (is_scale_bf16 ? ",bf16" : ",fp32");
    Generator generator(name);
    const PackedView view = int4_view(shape, is_scale_bf16);
    Values x(generator, shape.num_rows * shape.num_inputs, variant.is_bf16, variant.has_specials && shape.num_rows > 2);
    std::vector<int8_t> values(shape.num_rows * view.row_length());
    Values row_scales(shape.num_rows * kSegments, false);
    std::vector<int32_t> sums(shape.num_rows * view.num_sums());
    const QuantisedRows rows{values.data(), row_scales.as<float>(), sums.data()};
    set.quantised->quantise({x.rows(1, shape.num_inputs), view, rows}, 0, shape.num_rows * view.num_segments());
    Report report(set, name);
    for (const int8_t value : values) report.add(static_cast<uint32_t>(value));
    for (const int32_t sum : sums) report.add(static_cast<uint32_t>(sum));
    report.add(row_scales);
    multiply(set, report, variant, view, rows, shape.num_rows, generator);
}

void run_int4(const InstructionSet& set, Variant variant) {
    for (const Shape shape : kShapes)
        for (const bool is_scale_bf16 : {false, true}) run_int4_shape(set, variant, shape, is_scale_bf16);
}

// Activations at the edges, which the quantisation of rows gives only by chance.
void run_int4_edges(const InstructionSet& set, Variant variant) {
    if (!variant.has_specials) return;
    constexpr size_t kRows = 11;
    const PackedView view = int4_view({32, 2048, kRows, 256, 64, 64}, true);
    const std::string name = "int4_edges," + variant.name();
    Generator generator(name);
    std::vector<int8_t> values(kRows * view.row_length(), -128);
    for (size_t i = view.row_length(); i < values.size(); ++i) values[i] = generator.below(2) ? 127 : -128;
    std::vector<int32_t> sums(kRows * view.num_sums());
    for (size_t i = 0; i < values.size(); ++i) sums[i / view.cell] -= 8 * values[i];
    Values row_scales(generator, kRows * kSegments, false);
    Report report(set, name);
    multiply(set, report, variant, view, {values.data(), row_scales.as<float>(), sums.data()}, kRows, generator);
}

}  // namespace

void int4_cases(std::vector<Case>& cases) {
    cases.push_back({run_int4});
    cases.push_back({run_int4_edges});
}

}  // namespace qanat
