// Int8 matrices in panels, and rows back out of them.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

constexpr size_t kInputsTogether = 4;

QANAT_INLINE const float* scales_of(const PackedView& packed, const char* panel) {
    return reinterpret_cast<const float*>(panel + packed.row_length() * kPanelOutputs);
}

static void pack_int8(const QuantisedPackArguments& a, size_t first_panel, size_t last_panel) {
    const PackedView& packed = a.packed;
    const size_t num_values = packed.row_length() * kPanelOutputs;
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
        char* out = static_cast<char*>(a.data) + panel * packed.panel_bytes();
        __builtin_memset(out, 0, packed.panel_bytes());
        float* scales = reinterpret_cast<float*>(out + num_values);
        for (size_t lane = 0; lane < lanes_left(packed.num_outputs, panel * kPanelOutputs); ++lane) {
            const size_t output = panel * kPanelOutputs + lane;
            const int8_t* from = a.values + output * packed.num_inputs;
            for (size_t input = 0; input < packed.num_inputs; input += kInputsTogether) {
                const size_t left = packed.num_inputs - input;
                __builtin_memcpy(out + (input / kInputsTogether * kPanelOutputs + lane) * kInputsTogether, from + input,
                                 left < kInputsTogether ? left : kInputsTogether);
            }
            scales[lane] = a.scales[output];
            if (packed.has_bias) scales[kPanelOutputs + lane] = a.bias[output];
        }
    }
}

static void rows_int8(const TableArguments& a, size_t first_row, size_t last_row) {
    const PackedView& packed = a.packed;
    for (size_t row = first_row; row < last_row; ++row) {
        const size_t id = static_cast<size_t>(a.ids[row]), lane = id % kPanelOutputs;
        const char* panel = packed.panel(id / kPanelOutputs);
        const Lanes scale = broadcast(scales_of(packed, panel)[lane]);
        for (size_t input = 0; input < packed.num_inputs; input += kLanes) {
            alignas(64) float values[kLanes] = {};
            const size_t count = lanes_left(packed.num_inputs, input);
            for (size_t i = 0; i < count; ++i) {
                const size_t group = (input + i) / kInputsTogether, place = (input + i) % kInputsTogether;
                values[i] = static_cast<int8_t>(panel[(group * kPanelOutputs + lane) * kInputsTogether + place]);
            }
            store_any(a.out, row * packed.num_inputs + input, a.is_out_bf16, mul(load(values), scale), count);
        }
    }
}

}  // namespace QANAT_ISA
}  // namespace qanat
