// The inputs of a recorded step: arrays that stay where they are, which ops read by address. One call writes them anew
// before each replay; what stands behind a step's tokens and requests is padding, which changes nobody's cache or state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../kernels/arguments.hpp"

namespace qanat {

// T tokens of R requests.
struct StepArrays {
    int64_t *token_ids, *positions, *slots;                      // [T]
    int32_t *query_lens, *seq_lens, *num_computed, *state_ids;   // [R]
    int32_t *query_starts, *block_tables;                        // [R + 1], [R, table_width]
    Draw* draws;                                                 // [T], of the token that follows each
    int64_t* places;                                             // [T], of hidden rows in rings; -1 for none
};

// What a request computes: positions start to end - 1 of its tokens. `blocks` has `num_blocks` entries, which are enough;
// the key of `draw` is what the keys of all its positions begin with.
struct StepRequest {
    const int32_t *tokens, *blocks;
    const Draw* draw;
    size_t start, end, num_blocks;
    int32_t state_id;
    size_t row;
};

class StepInputs {
public:
    // The arrays have room for `max_tokens` tokens and as many requests, and are all zero.
    // Each batch row has a ring of `ring_size` places for its hidden rows; 0 where none are kept.
    StepInputs(const StepArrays& arrays, size_t max_tokens, size_t table_width, size_t block_size, size_t ring_size);

    // Each request has a token at least, and all together have no more than there is room for.
    void fill(const std::vector<StepRequest>& requests);
    size_t max_tokens() const { return max_tokens_; }

private:
    void pad(size_t num_tokens, size_t num_requests);

    StepArrays to_;
    size_t max_tokens_, table_width_, block_size_, ring_size_;
    size_t num_tokens_ = 0, num_requests_ = 0;  // of the step before
};

}  // namespace qanat
