// Cases of the products with quantised matrices: activations quantised by their own rows and by fixed scales, and all
// pairs of the values at the edges.
#include "parity.hpp"

namespace qanat {

namespace {

struct Shape {
    size_t num_outputs, num_inputs, num_rows;
    size_t num_segments = kSegments;
};
constexpr Shape kShapes[] = {{16, 8, 1}, {40, 37, 2}, {33, 100, 13}, {5, 520, 7}, {19, 1030, 9},
                            {40, 320, 9, 1}, {17, 2400, 5, 1}, {33, 512, 35, 4}, {20, 384, 40, 2}, {9, 576, 11, 3}};

std::vector<int8_t> random_bytes(Generator& generator, size_t count, bool is_at_edges) {
    static constexpr int8_t kEdges[] = {-128, -127, 0, 127};
    std::vector<int8_t> values(count);
    for (int8_t& value : values)
        value = is_at_edges ? kEdges[generator.below(4)] : static_cast<int8_t>(static_cast<int>(generator.below(256)) - 128);
    return values;
}

PackedView int8_view(Shape shape, bool has_bias, bool is_static) {
    PackedView view{};
    view.kind = Kind::kInt8;
    view.num_outputs = shape.num_outputs;
    view.num_inputs = shape.num_inputs;
    view.segment_length = ((shape.num_inputs + shape.num_segments - 1) / shape.num_segments + 3) / 4 * 4;
    view.has_bias = has_bias;
    view.is_static = is_static;
    view.static_scale = 0.013f;
    view.static_offset = -11.0f;
    return view;
}

void add_bytes(Report& report, const std::vector<char>& bytes) {
    for (const char byte : bytes) report.add(static_cast<uint32_t>(static_cast<unsigned char>(byte)));
}

void run_int8_shape(const InstructionSet& set, Variant variant, Shape shape, bool is_static) {
    const std::string name = "int8," + variant.name() + "," + std::to_string(shape.num_outputs) + "x" +
                             std::to_string(shape.num_inputs) + "x" + std::to_string(shape.num_rows) +
                             (shape.num_segments < kSegments ? ",segments" + std::to_string(shape.num_segments) : "") +
                             (is_static ? ",static" : ",dynamic");
    Generator generator(name);
    PackedView view = int8_view(shape, is_static, is_static);
    const std::vector<int8_t> weights = random_bytes(generator, shape.num_outputs * shape.num_inputs, variant.has_specials);
    Values scales(generator, shape.num_outputs, false), bias(generator, shape.num_outputs, false);
    Values x(generator, shape.num_rows * shape.num_inputs, variant.is_bf16, variant.has_specials && shape.num_rows > 2);
    std::vector<char> packed(view.size_bytes());
    view.data = packed.data();
    set.quantised->int8.pack({weights.data(), scales.as<float>(), bias.as<float>(), view, packed.data()}, 0, view.num_panels());
    std::vector<int8_t> values(shape.num_rows * view.row_length());
    Values row_scales(shape.num_rows * kSegments, false), out(shape.num_rows * shape.num_outputs, variant.is_bf16);
    std::vector<int32_t> sums(shape.num_rows * kSegments);
    const QuantisedRows rows{values.data(), row_scales.as<float>(), sums.data()};
    set.quantised->quantise({x.rows(1, shape.num_inputs), view, rows}, 0, shape.num_rows * view.num_segments());
    set.quantised->int8.linear({rows, view, out.data(), shape.num_outputs, variant.is_bf16, nullptr, nullptr}, 0,
                               shape.num_rows, 0, view.num_panels());
    const int64_t ids[] = {0, static_cast<int64_t>(shape.num_outputs) - 1};
    Values table(2 * shape.num_inputs, variant.is_bf16);
    set.quantised->int8.rows({view, ids, table.data(), variant.is_bf16}, 0, 2);
    Report report(set, name);
    add_bytes(report, packed);
    for (const int8_t value : values) report.add(static_cast<uint32_t>(value));
    for (const int32_t sum : sums) report.add(static_cast<uint32_t>(sum));
    report.add(row_scales);
    report.add(out);
    report.add(table);
}

void run_int8(const InstructionSet& set, Variant variant) {
    for (const Shape shape : kShapes)
        for (const bool is_static : {false, true}) run_int8_shape(set, variant, shape, is_static);
}

// Activations at the edges too, which the quantisation of rows gives only by chance.
void run_int8_edges(const InstructionSet& set, Variant variant) {
    if (!variant.has_specials) return;
    constexpr Shape kShape{32, 2052, 11};
    PackedView view = int8_view(kShape, false, false);
    const std::string name = "int8_edges," + variant.name();
    Generator generator(name);
    const std::vector<int8_t> weights = random_bytes(generator, kShape.num_outputs * kShape.num_inputs, true);
    Values scales(generator, kShape.num_outputs, false), row_scales(generator, kShape.num_rows * kSegments, false);
    std::vector<char> packed(view.size_bytes());
    view.data = packed.data();
    set.quantised->int8.pack({weights.data(), scales.as<float>(), nullptr, view, packed.data()}, 0, view.num_panels());
    std::vector<int8_t> values = random_bytes(generator, kShape.num_rows * view.row_length(), true);
    // The whole of the first row as far from zero as can be.
    for (size_t i = 0; i < view.row_length(); ++i) values[i] = -128;
    std::vector<int32_t> sums(kShape.num_rows * kSegments);
    for (size_t i = 0; i < values.size(); ++i)
        sums[i / view.row_length() * kSegments + i % view.row_length() / view.segment_length] += values[i];
    Values out(kShape.num_rows * kShape.num_outputs, variant.is_bf16);
    set.quantised->int8.linear({{values.data(), row_scales.as<float>(), sums.data()}, view, out.data(), kShape.num_outputs,
                                variant.is_bf16, nullptr, nullptr}, 0, kShape.num_rows, 0, view.num_panels());
    Report(set, name).add(out);
}

}  // namespace

void quantised_cases(std::vector<Case>& cases) {
    cases.push_back({run_int8});
    cases.push_back({run_int8_edges});
}

}  // namespace qanat
