// Int4 matrices in panels, and rows back out of them.
#pragma once

#include "../lanes/lanes.hpp"
#include "arguments.hpp"

namespace qanat {
namespace QANAT_ISA {

// Eight weights -8..7 as eight bytes of w + 8; those outside the matrix are zeros (8).
QANAT_INLINE uint64_t eight_weights(const QuantisedPackArguments& a, size_t output, size_t input) {
    const uint64_t eights = 0x0808080808080808u;
    if (output >= a.packed.num_outputs || input >= a.packed.num_inputs) return eights;
    const size_t left = a.packed.num_inputs - input;
    const int8_t* from = a.values + output * a.packed.num_inputs + input;
    uint64_t word = 0;
    if (left >= 8) __builtin_memcpy(&word, from, 8);
    else for (size_t i = 0; i < left; ++i) word |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << (8 * i);
    // Adding 8 to four bits is turning over the highest of them.
    return (word & 0x0f0f0f0f0f0f0f0fu) ^ eights;
}

static void int4_pack_scales(const QuantisedPackArguments& a, size_t panel, size_t segment, uint8_t* to) {
    const PackedView& packed = a.packed;
    for (size_t i = 0; i < packed.num_cells() * kPanelOutputs; ++i) {
        const size_t output = panel * kPanelOutputs + i % kPanelOutputs;
        const size_t input = segment * packed.segment_length + i / kPanelOutputs * packed.cell;
        float scale = 0.0f;
        if (output < packed.num_outputs && input < packed.num_inputs)
            scale = a.scales[output * packed.num_inputs / packed.group_size + input / packed.group_size];
        uint32_t bits;
        __builtin_memcpy(&bits, &scale, 4);
        const uint16_t upper = static_cast<uint16_t>(bits >> 16);
        if (packed.is_scale_bf16) __builtin_memcpy(to + i * 2, &upper, 2);
        else __builtin_memcpy(to + i * 4, &bits, 4);
    }
}

static void pack_int4(const QuantisedPackArguments& a, size_t first_panel, size_t last_panel) {
    const PackedView& packed = a.packed;
    const size_t weight_bytes = packed.segment_length * kPanelOutputs / 2;
    uint8_t* to = static_cast<uint8_t*>(a.data) + first_panel * packed.panel_bytes();
    for (size_t panel = first_panel; panel < last_panel; ++panel)
        for (size_t segment = 0; segment < packed.num_segments(); ++segment, to += packed.int4_segment_bytes()) {
            for (size_t k = 0; k < packed.segment_length; k += 8)
                for (size_t lane = 0; lane < kPanelOutputs; ++lane) {
                    const size_t output = panel * kPanelOutputs + lane;
                    const uint64_t word = eight_weights(a, output, segment * packed.segment_length + k);
                    const uint32_t bytes = static_cast<uint32_t>(word) | static_cast<uint32_t>(word >> 32) << 4;
                    __builtin_memcpy(to + k * 8 + lane * 4, &bytes, 4);
                }
            __builtin_memset(to + weight_bytes, 0, packed.int4_segment_bytes() - weight_bytes);
            int4_pack_scales(a, panel, segment, to + weight_bytes);
        }
}

// The weights of one output from `input` on, times their scales.
QANAT_INLINE Lanes int4_values(const PackedView& packed, size_t output, size_t input, size_t count) {
    const uint8_t* panel = reinterpret_cast<const uint8_t*>(packed.panel(output / kPanelOutputs));
    const size_t lane = output % kPanelOutputs, length = packed.segment_length;
    alignas(64) float values[kLanes] = {}, scales[kLanes] = {};
    for (size_t i = 0; i < count; ++i) {
        const uint8_t* w = panel + (input + i) / length * packed.int4_segment_bytes();
        const size_t k = (input + i) % length;
        const int byte = w[k / 8 * 64 + lane * 4 + k % 4];
        values[i] = static_cast<float>((k % 8 < 4 ? byte & 15 : byte >> 4) - 8);
        scales[i] = scalar_any(w + length * 8, k / packed.cell * kPanelOutputs + lane, packed.is_scale_bf16);
    }
    return mul(load(values), load(scales));
}

static void rows_int4(const TableArguments& a, size_t first_row, size_t last_row) {
    const size_t size = a.packed.num_inputs;
    for (size_t row = first_row; row < last_row; ++row)
        for (size_t input = 0; input < size; input += kLanes) {
            const size_t count = lanes_left(size, input);
            const Lanes values = int4_values(a.packed, static_cast<size_t>(a.ids[row]), input, count);
            store_any(a.out, row * size + input, a.is_out_bf16, values, count);
        }
}

}  // namespace QANAT_ISA
}  // namespace qanat
