// What the kernels are told: plain pointers and sizes. Every kernel computes a range of independent tasks, so that the
// threads may share them out in any way: no result depends on where the ranges are cut.
//
// Letters: T rows, R requests, H heads, D head dim, C channels. `is_..._bf16` says bf16, otherwise fp32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qanat {

constexpr size_t kPanelOutputs = 16;  // outputs that stand beside each other in a packed matrix, one in each lane
constexpr size_t kSegments = 8;       // parts of the inputs with a sum each (rule R12)
constexpr size_t kHalfSegments = 4;   // of them whose weights are interleaved

// A matrix [num_outputs, num_inputs] packed as [panels][2][segment_length][4][16]: what a product reads is one stream.
// Segment s holds inputs s * segment_length and on; what is beyond the matrix is zero.
struct PackedView {
    const void* data;
    bool is_bf16;
    size_t num_outputs, num_inputs, segment_length;
    size_t num_panels() const { return (num_outputs + kPanelOutputs - 1) / kPanelOutputs; }
    size_t row_length() const { return segment_length * kSegments; }
};

struct PackArguments {
    const void* source;  // [num_outputs, num_inputs]
    size_t source_stride;
    PackedView packed;
    void* data;
};

struct LinearArguments {
    const float* x;  // rows of packed.row_length(), zero beyond num_inputs
    PackedView packed;
    void* out;
    size_t out_stride;
    bool is_out_bf16;
    const int32_t* in_rows;   // row of x for each row; null: itself
    const int32_t* out_rows;  // row of out for each row; null: itself
};

// Rows [T, H, size] of a tensor whose last axis is contiguous.
struct Rows {
    const void* data;
    bool is_bf16;
    size_t num_inner;  // H
    size_t outer_stride, inner_stride;
    size_t start(size_t row) const { return row / num_inner * outer_stride + row % num_inner * inner_stride; }
};

struct NormArguments {
    Rows x, other;  // other: the residual, or the gate
    const void* weight;
    bool is_weight_bf16, is_zero_centred;
    void* out;    // contiguous
    void* total;  // contiguous: x + residual
    bool is_out_bf16;
    size_t size;
    float eps;
};

struct SwigluArguments {
    Rows gate, up;
    void* out;
    bool is_out_bf16;
    size_t size;
};

struct RotaryArguments {
    Rows x;  // [T, H, D]
    const void *cosines, *sines;  // [T, half]
    bool is_angle_bf16;
    void* out;
    bool is_out_bf16;
    size_t size, half;
};

struct StoreArguments {
    Rows keys, values;  // [T, H, D]
    void* cache;        // [2, N, block_size, H, D]
    bool is_cache_bf16;
    size_t values_start;  // elements of the keys' half
    const int64_t* slots;
    size_t num_kv_heads, head_dim;
};

struct AttentionArguments {
    Rows q, gate;  // [T, H, D]; gate.data null: none
    const void* cache;
    bool is_cache_bf16;
    size_t values_start;
    const int32_t* block_tables;
    size_t table_stride;
    const int32_t *row_requests, *row_positions;  // of each row
    void* out;                                    // [T, H, D]
    bool is_out_bf16;
    size_t block_size, num_heads, num_kv_heads, head_dim;
    float scale;
};

// The rows of one request in a step, and where its state lies.
struct Span {
    int32_t first_row, num_rows, state_id;
    int32_t is_new;  // starts from zero, whatever its state holds
};

struct ConvArguments {
    Rows x;  // [T, 1, C]
    const void* weight;  // [C, taps]
    bool is_weight_bf16;
    void* states;  // [S, taps - 1, C]
    bool is_state_bf16;
    const Span* spans;
    void* out;  // [T, C]
    bool is_out_bf16;
    size_t num_channels, num_taps;
};

struct GateArguments {
    Rows a, b;  // [T, 1, H]
    const float* a_log;
    const void* dt_bias;
    bool is_bias_bf16;
    float *log_decay, *strength;
    size_t num_heads;
};

struct UnitArguments {
    Rows x;      // [T, H, D]
    float* out;  // contiguous
    size_t size;
    float scale;
};

struct DeltaArguments {
    const float *q, *k;  // unit rows [T, HK, dk]
    Rows v;              // [T, HV, dv]
    const float *log_decay, *strength;  // [T, HV]
    float* states;                      // [S, HV, dk, dv]
    const Span* spans;
    void* out;  // [T, HV, dv]
    bool is_out_bf16;
    size_t num_key_heads, num_value_heads, key_dim, value_dim;
};

struct RouteArguments {
    Rows logits;  // [T, 1, E]
    float* weights;
    int64_t* expert_ids;
    float* scratch;  // E for each task range; see route.hpp
    size_t num_experts, top_k;
    bool is_renormalised;
};

struct CombineArguments {
    const void* expert_out;  // [T, K, C]
    bool is_bf16;
    const float* weights;       // [T, K]
    const void *shared, *gate;  // [T, C], [T]; null: none
    void* out;
    size_t size, top_k;
};

// The kernels of one instruction set.
struct KernelTable {
    void (*pack)(const PackArguments&, size_t first_panel, size_t last_panel);
    void (*linear)(const LinearArguments&, size_t first_row, size_t last_row, size_t first_panel, size_t last_panel);
    void (*widen)(const Rows& x, size_t size, float* out, size_t out_stride, size_t first, size_t last);
    void (*rms_norm)(const NormArguments&, size_t first, size_t last);
    void (*add_rms_norm)(const NormArguments&, size_t first, size_t last);
    void (*gated_rms_norm)(const NormArguments&, size_t first, size_t last);
    void (*swiglu)(const SwigluArguments&, size_t first, size_t last);
    void (*rotary)(const RotaryArguments&, size_t first, size_t last);
    void (*store)(const StoreArguments&, size_t first, size_t last);
    void (*attention)(const AttentionArguments&, size_t first, size_t last);
    void (*conv)(const ConvArguments&, size_t first, size_t last);
    void (*gates)(const GateArguments&, size_t first, size_t last);
    void (*unit)(const UnitArguments&, size_t first, size_t last);
    void (*delta)(const DeltaArguments&, size_t first, size_t last);
    void (*route)(const RouteArguments&, size_t first, size_t last);
    void (*combine)(const CombineArguments&, size_t first, size_t last);
    void (*functions)(int which, const float* x, float* out, size_t count);
};

const KernelTable& scalar_kernels();
#if defined(QANAT_HAS_X86)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
#endif

}  // namespace qanat
