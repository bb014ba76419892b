// The ops as Python calls them: whole tensors in, whole tensors out. Each takes its turn in the runtime, lays out its
// scratch, and shares its tasks among the threads. A tape calls them again with the same arguments, so whatever changes
// from step to step comes by address, and memory comes from scratch alone: what is allocated here is allocated each step.
#pragma once

#include <vector>

#include "packed.hpp"
#include "shared_rows.hpp"

namespace qanat {

// The requests of a step, R numbers each; null where an op does not ask. One without rows is left as it is.
struct Requests {
    size_t count;
    const int32_t *query_lens, *seq_lens, *num_computed, *state_ids;
};

// A matrix that rows are multiplied with.
struct LinearTarget {
    const PackedMatrix* matrix;
    void* shared;  // the rows as it reads them, see `SharedRows`; null: they are made ready by the op
    void* out;
    bool is_out_bf16;
};
void run_linear(const Rows& x, size_t num_rows, const std::vector<LinearTarget>& targets);
void run_embedding(const int64_t* token_ids, size_t num_rows, const PackedMatrix& matrix, void* out, bool is_out_bf16);

// The matrices of experts, and which of them each row takes.
struct ExpertArguments {
    const PackedMatrix *gate_up, *down;
    void* ready_rows;  // the rows as gate_up reads them, see `SharedRows`; null: they are made ready by the op
    const int64_t* expert_ids;  // [T, K]
    size_t top_k;
    const float* weights;  // [T, K] of the sum over a row's experts; null: what each gives is kept
    // An expert that all rows share, added with weights: what its first products gave, and the second matrix; null: none.
    Rows shared_gate, shared_up;
    const PackedMatrix* shared_down;
    const void* shared_scale;  // [T]
    void* out;                 // [T, C], or [T, K, C]
    bool is_out_bf16;
};
void run_experts(const Rows& x, size_t num_rows, const ExpertArguments& arguments);
// Rows of a table that lies as it is: `row_bytes` each. Throws std::out_of_range for an id beyond `table_rows`.
void run_gather(const int64_t* ids, size_t num_rows, const void* table, size_t table_rows, size_t row_bytes, void* out);

// Rounds groups first..last of a matrix. Takes no turn, as nothing is shared: several threads may each round their part.
void run_rounding(const RoundingArguments& arguments, size_t first, size_t last);
// Rows of several tensors side by side: `row_bytes` of each.
struct JoinedPart {
    const void* rows;
    size_t row_bytes, stride_bytes;
};
void run_join(const std::vector<JoinedPart>& parts, size_t num_rows, void* out);
// Rows of `row_bytes` each into a table that has them; those with a place below 0 are left out.
void run_scatter(const void* rows, const int64_t* places, size_t num_rows, size_t row_bytes, void* table, size_t table_rows);
// Tokens of a choice, 0 where it has none.
void run_known_tokens(const int64_t* choice, size_t num_rows, int64_t* out);

// What verified drafts have left, R entries each: (first, number) of the held rows that are absorbed now, and whether the
// rows of this step are held. Null where nothing is ever held.
struct HeldRows {
    const int32_t *accepted, *are_held;
};

// States that are left at another place besides, [N, 3] in ascending order: request, number of its rows of this step that
// the state has absorbed then, and where it goes.
struct StateStores {
    const int32_t* wanted;
    size_t count;
};

enum class Norm { kPlain, kAdded, kGated };
void run_norm(Norm kind, const NormArguments& arguments, size_t num_rows);
void run_swiglu(const SwigluArguments& arguments, size_t num_rows);
// The same, each with its result as int8 beside it. Of the gated norm, heads that make up `num_rows` rows.
void run_quantise(const Rows& x, size_t num_rows, const SharedRows& shared);
void run_quantised_norm(const NormArguments& arguments, size_t num_rows, const SharedRows& shared);
void run_quantised_gated_norm(const NormArguments& arguments, size_t num_rows, const SharedRows& shared);
void run_quantised_swiglu(const SwigluArguments& arguments, size_t num_rows, const SharedRows& shared);
void run_rotary_rows(const int64_t* positions, size_t num_axes, size_t num_rows, const float* frequencies, size_t half,
                     const std::vector<int>& sections, float scale, void* cosines, void* sines, bool is_bf16);
void run_heads(const HeadArguments& arguments, const Requests& requests, size_t num_rows);
void run_attention(AttentionArguments attention, const Requests& requests, size_t num_rows);
// Throws std::out_of_range where more rows are held, or absorbed, than there is room for.
void run_delta_net(DeltaNetArguments arguments, const Requests& requests, const HeldRows& held, const StateStores& stores,
                   size_t num_rows);
void run_route(RouteArguments arguments, size_t num_rows);
void run_combine(const CombineArguments& arguments, size_t num_rows);
// A token of each row, -1 where no score that may be chosen is above -inf, to `chosen` [T]; behind them whether all of the
// row's scores are finite [T].
void run_choice(ChoiceArguments arguments, int64_t* chosen, size_t num_rows);

}  // namespace qanat
