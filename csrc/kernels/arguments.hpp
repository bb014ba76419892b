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
constexpr size_t kMaxInterleaved = 4; // of them whose weights stand beside each other in plain matrices

enum class Kind : int32_t { kFp32, kBf16, kInt8, kInt4 };

// These small functions must be inlined: a copy that the linker keeps could be one that a lower processor cannot run.
#define QANAT_MEMBER inline __attribute__((always_inline))

// A packed matrix [num_outputs, num_inputs]: panels of 16 outputs behind each other, so that what a product reads is one
// stream. Segment s holds inputs s * segment_length and on; what is beyond the matrix is zero. A panel is
//   fp32, bf16  values [num_segments / i][segment_length][i][16], i segments interleaved
//   int8        values [num_segments][segment_length / 4][16][4], scales fp32 [16], and bias fp32 [16] if it has one
//   int4        in each of num_segments: [segment_length / 8][16][4] bytes of two weights (inputs i and i + 4, each as
//               w + 8, the first in the lower half), scales [segment_length / cell][16], up to a multiple of 64 bytes
struct PackedView {
    const void* data;
    Kind kind;
    size_t num_outputs, num_inputs, segment_length;
    size_t group_size;   // int4: inputs that share a scale
    size_t cell;         // int4: those of them that lie in one segment, summed as integers; a multiple of 8
    bool is_scale_bf16;  // int4
    bool has_bias;
    bool is_static;  // activations are quantised as round(x / static_scale + static_offset)
    float static_scale, static_offset;

    QANAT_MEMBER bool is_bf16() const { return kind == Kind::kBf16; }
    QANAT_MEMBER bool is_quantised() const { return kind == Kind::kInt8 || kind == Kind::kInt4; }
    QANAT_MEMBER size_t num_panels() const { return (num_outputs + kPanelOutputs - 1) / kPanelOutputs; }
    // Segments that a shard of the inputs has no part of are left out; of a plain matrix there are 1, 2, 4 or 8.
    QANAT_MEMBER size_t num_segments() const {
        const size_t used = (num_inputs + segment_length - 1) / segment_length;
        if (is_quantised()) return used;
        return used <= 1 ? 1 : used <= 2 ? 2 : used <= kMaxInterleaved ? kMaxInterleaved : kSegments;
    }
    QANAT_MEMBER size_t num_interleaved() const {
        return num_segments() < kMaxInterleaved ? num_segments() : kMaxInterleaved;
    }
    QANAT_MEMBER size_t row_length() const { return segment_length * num_segments(); }
    QANAT_MEMBER size_t num_cells() const { return segment_length / cell; }  // of a segment
    QANAT_MEMBER size_t int4_segment_bytes() const {
        const size_t scale_bytes = num_cells() * kPanelOutputs * (is_scale_bf16 ? 2 : 4);
        return segment_length * kPanelOutputs / 2 + (scale_bytes + 63) / 64 * 64;
    }
    // Of a quantised row: see QuantisedRows.
    QANAT_MEMBER size_t num_sums() const { return kind == Kind::kInt4 ? row_length() / cell : kSegments; }
    QANAT_MEMBER size_t panel_bytes() const {
        const size_t num_values = kPanelOutputs * row_length();
        const size_t row_bytes = kPanelOutputs * sizeof(float);
        switch (kind) {
            case Kind::kFp32: return num_values * 4;
            case Kind::kBf16: return num_values * 2;
            case Kind::kInt8: return num_values + row_bytes * (has_bias ? 2 : 1);
            case Kind::kInt4: return num_segments() * int4_segment_bytes();
        }
        return 0;
    }
    QANAT_MEMBER size_t size_bytes() const { return num_panels() * panel_bytes(); }
    QANAT_MEMBER const char* panel(size_t i) const { return static_cast<const char*>(data) + i * panel_bytes(); }
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
    QANAT_MEMBER size_t start(size_t row) const { return row / num_inner * outer_stride + row % num_inner * inner_stride; }
};

// Source of a quantised matrix; int8 values and fp32 scales [num_outputs, groups], contiguous. Int4 values are -8..7.
struct QuantisedPackArguments {
    const int8_t* values;  // [num_outputs, num_inputs]
    const float *scales, *bias;
    PackedView packed;
    void* data;
};

// Activations as int8, rows of row_length() values (zero beyond num_inputs), with what each segment of a row needs.
struct QuantisedRows {
    int8_t* values;   // [T][row_length]
    float* scales;    // [T][8]; NaN where the segment held a value that is not finite
    int32_t* sums;    // [T][num_sums]; int8: the sum of each segment's values, int4: -8 times that of each cell's
};

struct QuantiseArguments {
    Rows x;
    PackedView packed;  // num_inputs, segment_length and the static scale count
    QuantisedRows out;
};

struct QuantisedArguments {
    QuantisedRows x;
    PackedView packed;
    void* out;
    size_t out_stride;
    bool is_out_bf16;
    const int32_t* in_rows;   // row of x for each row; null: itself
    const int32_t* out_rows;  // row of out for each row; null: itself
};

// Some rows of a packed table, dequantised.
struct TableArguments {
    PackedView packed;
    const int64_t* ids;
    void* out;  // [T, num_inputs]
    bool is_out_bf16;
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

// Queries, keys and values on their way to attention: norms and rotary embedding, and the cache that holds the latter two.
struct HeadArguments {
    Rows q, k, v;  // [T, H, D], [T, KV heads, D]
    const void *q_weight, *k_weight;  // null: no norm
    bool is_weight_bf16, is_zero_centred;
    float eps;
    const void *cosines, *sines;  // [T, half]
    bool is_angle_bf16;
    size_t half;
    void* out;  // [T, H, D] queries, in the type of q
    void* cache;  // [2, N, block_size, KV heads, D]; of int8, each head's D values have their fp32 scale behind them
    Kind cache_kind;      // fp32, bf16 or int8
    size_t values_start;  // elements of the keys' half
    const int64_t* slots;
    size_t num_heads, num_kv_heads, head_dim;
};

struct AttentionArguments {
    Rows q, gate;  // [T, H, D]; gate.data null: none
    const void* cache;
    Kind cache_kind;
    size_t values_start;
    const int32_t* block_tables;
    size_t table_stride;
    const int32_t *row_requests, *row_positions;  // of each row
    void* out;                                    // [T, H, D]
    bool is_out_bf16;
    size_t block_size, num_heads, num_kv_heads, head_dim;
    float scale;
};

// The lines of one request in a step, and where its state lies. Its lines are first those held rows of an earlier step that
// it absorbs now, then its rows of this step.
struct Span {
    int32_t first_line, first_row, num_rows;
    int32_t first_absorbed, num_absorbed;  // of the held rows
    int32_t state_id;
    bool is_new;   // starts from zero, whatever its state holds
    bool is_held;  // its rows leave the state as it is, and are kept instead
    int32_t first_store, num_stores;  // of `stores`: where its state is left besides, on the way
    QANAT_MEMBER int32_t num_lines() const { return num_absorbed + num_rows; }
    // Lines whose inputs the state holds afterwards.
    QANAT_MEMBER int32_t num_kept() const { return is_held ? num_absorbed : num_lines(); }
};

// The state after so many lines of a request, to be left at another place too.
struct StateStore {
    int32_t num_lines, state_id;
};

// Convolution, gates and delta rule of a layer. C = 2 HK dk + HV dv channels: queries, keys, values. L lines.
struct DeltaNetArguments {
    Rows x;     // [T, 1, C]
    Rows a, b;  // [T, 1, HV]
    const void* weight;  // [taps, C]
    bool is_weight_bf16;
    const float* a_log;
    const void* dt_bias;
    bool is_bias_bf16;
    void* conv_states;   // [S, taps - 1, C]
    void* held_inputs;   // [S, max_held, C], in the type of conv_states
    bool is_state_bf16;
    float* held_gates;   // [S, max_held, 2, HV]: log-decay, write strength
    float* states;       // [S, HV, dk, dv]
    void* out;           // [T, HV, dv]
    bool is_out_bf16;
    size_t max_held, num_taps, num_key_heads, num_value_heads, key_dim, value_dim;
    const Span* spans;
    const int32_t* line_spans;         // [L]
    const StateStore* stores;          // of each span in ascending order of lines
    float *q, *k, *v, *log_decay, *strength;  // scratch [L, HK, dk] twice, of unit length; [L, HV, dv]; [L, HV] twice
    QANAT_MEMBER size_t num_past() const { return num_taps - 1; }
    QANAT_MEMBER size_t num_channels() const { return 2 * num_key_heads * key_dim + num_value_heads * value_dim; }
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

// A float matrix that becomes whole numbers, each group of inputs with a scale; see `qanat.quant.rounding`.
struct RoundingArguments {
    const void* x;  // [rows, num_inputs]
    bool is_bf16, is_int4;
    size_t num_inputs, group_size;
    const float* importance;  // [num_inputs], null: all alike
    int8_t* values;
    float* scales;  // [rows, num_inputs / group_size]
};

// How a row's token is chosen among its scores. `qanat.kernels.draws` has the same record.
struct Draw {
    uint64_t key;       // of the noise
    double top_p;       // 1 keeps all
    float temperature;  // 0: the largest score's
    float log_min_p;    // -inf keeps all
    int32_t top_k;      // 0 keeps all
    int32_t unused;
    QANAT_MEMBER bool is_greedy() const { return !(temperature > 0.0f); }
    QANAT_MEMBER bool is_filtered() const {
        return !is_greedy() && (top_k > 0 || top_p < 1.0 || log_min_p > -__builtin_inff());
    }
};

constexpr size_t kChoiceBlock = 4096, kChoiceGroup = 64;  // scores of one task; of one peak that a filter looks at

struct ChoiceArguments {
    const float* scores;  // [T, num_scores]
    size_t stride, num_scores, num_valid;
    const Draw* draws;          // [T]; null: all are greedy
    float *peaks, *poisons;     // [T, num_blocks]
    int32_t* ids;               // the same
    float* group_peaks;         // [T, num_groups] of scores divided by the temperature, for filtered rows alone
    QANAT_MEMBER size_t num_blocks() const { return (num_scores + kChoiceBlock - 1) / kChoiceBlock; }
    QANAT_MEMBER size_t num_groups() const { return num_blocks() * (kChoiceBlock / kChoiceGroup); }
};

// The scores that a row's filters may leave, best first.
struct Candidate {
    float value;  // score / temperature
    int32_t id;
};

struct FilterArguments {
    const float* scores;  // of one row
    size_t num_valid;
    Draw draw;
    float peak;  // the largest score / temperature
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
    void (*heads)(const HeadArguments&, size_t first, size_t last);
    void (*attention)(const AttentionArguments&, size_t first, size_t last);
    void (*delta_inputs)(const DeltaNetArguments&, size_t first, size_t last);
    void (*delta_rule)(const DeltaNetArguments&, size_t first, size_t last);
    void (*delta_kept)(const DeltaNetArguments&, size_t first, size_t last);
    void (*route)(const RouteArguments&, size_t first, size_t last);
    void (*combine)(const CombineArguments&, size_t first, size_t last);
    void (*round_groups)(const RoundingArguments&, float* room, size_t first, size_t last);
    void (*choice)(const ChoiceArguments&, size_t first, size_t last);
    double (*mass)(const FilterArguments&);
    int32_t (*pick)(const FilterArguments&, const Candidate* sorted, size_t count, double mass);
    void (*functions)(int which, const float* x, float* out, size_t count);
};

// Those of one kind of quantised matrices.
struct QuantisedKernels {
    void (*pack)(const QuantisedPackArguments&, size_t first_panel, size_t last_panel);
    void (*linear)(const QuantisedArguments&, size_t first_row, size_t last_row, size_t first_panel, size_t last_panel);
    void (*rows)(const TableArguments&, size_t first_row, size_t last_row);
};

// Those of quantised matrices, which have instruction sets of their own.
struct QuantisedTable {
    void (*quantise)(const QuantiseArguments&, size_t first, size_t last);  // tasks are segments of rows
    QuantisedKernels int8, int4;
    QANAT_MEMBER const QuantisedKernels& of(Kind kind) const { return kind == Kind::kInt4 ? int4 : int8; }
};

const KernelTable& scalar_kernels();
const QuantisedTable& scalar_quantised();
#if defined(QANAT_HAS_X86)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const QuantisedTable& avx2_quantised();
const QuantisedTable& avx512_quantised();
const QuantisedTable& avx_vnni_quantised();
const QuantisedTable& avx512_vnni_quantised();
const QuantisedTable& amx_quantised();
#elif defined(QANAT_HAS_ARM)
const KernelTable& neon_kernels();
const QuantisedTable& neon_quantised();
const QuantisedTable& neon_dotprod_quantised();
const QuantisedTable& neon_i8mm_quantised();
#endif

}  // namespace qanat
