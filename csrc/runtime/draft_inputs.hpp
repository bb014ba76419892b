// The inputs of a draft layer's recorded passes: a first one over tokens of R requests, then P passes over one guessed
// token of each. As `StepInputs`, they are written anew before each replay, and padding changes nobody's cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../kernels/arguments.hpp"

namespace qanat {

struct DraftArrays {
    int64_t *token_ids, *positions, *slots;  // [T] of the first pass
    int64_t *sources;                        // [T], places of the hidden rows before its tokens
    int64_t *last_rows;                      // [R], of each request the last of them
    int64_t *later_positions, *later_slots;  // [P, R]
    int32_t *query_lens, *seq_lens;          // [1 + P, R]
    int32_t *query_starts;                   // [1 + P, R + 1]
    int32_t *block_tables;                   // [R, table_width]
    Draw* draws;                             // [1 + P, R], of the token behind each pass
};

// Entries of the tokens at positions start to end - 1, and so many guesses behind them. Entries before `first` are not
// read: tables begin with its block. The hidden row of a position lies in the ring of batch row `row`.
struct DraftRequest {
    const int32_t *tokens, *blocks;
    const Draw* draw;
    size_t start, end, first, num_blocks, num_drafts, row;
};

class DraftInputs {
public:
    DraftInputs(const DraftArrays& arrays, size_t max_tokens, size_t max_requests, size_t num_later, size_t table_width,
                size_t block_size, size_t ring_size);

    void fill(const std::vector<DraftRequest>& requests);

private:
    void clear();
    void add(const DraftRequest& own, size_t request, size_t row);

    DraftArrays to_;
    size_t max_tokens_, max_requests_, num_later_, table_width_, block_size_, ring_size_;
};

}  // namespace qanat
