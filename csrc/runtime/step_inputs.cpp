#include "step_inputs.hpp"

#include <algorithm>
#include <stdexcept>

#include "position_key.hpp"

namespace qanat {

StepInputs::StepInputs(const StepArrays& arrays, size_t max_tokens, size_t table_width, size_t block_size,
                       size_t ring_size)
    : to_(arrays), max_tokens_(max_tokens), table_width_(table_width), block_size_(block_size), ring_size_(ring_size) {}

void StepInputs::fill(const std::vector<StepRequest>& requests) {
    size_t token = 0;
    for (const StepRequest& own : requests) {
        token += own.end - own.start;
        if (own.num_blocks > table_width_ || token > max_tokens_) throw std::out_of_range("a step is larger than its inputs");
    }
    token = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        const StepRequest& own = requests[i];
        to_.query_lens[i] = static_cast<int32_t>(own.end - own.start);
        to_.seq_lens[i] = static_cast<int32_t>(own.end);
        to_.num_computed[i] = static_cast<int32_t>(own.start);
        to_.state_ids[i] = own.state_id;
        std::copy(own.blocks, own.blocks + own.num_blocks, to_.block_tables + i * table_width_);
        for (size_t position = own.start; position < own.end; ++position, ++token) {
            to_.token_ids[token] = own.tokens[position];
            to_.positions[token] = static_cast<int64_t>(position);
            to_.slots[token] = static_cast<int64_t>(own.blocks[position / block_size_]) * static_cast<int64_t>(block_size_) +
                               static_cast<int64_t>(position % block_size_);
            to_.draws[token] = *own.draw;
            to_.draws[token].key = position_key(own.draw->key, position + 1);
            if (ring_size_) to_.places[token] = static_cast<int64_t>(own.row * ring_size_ + position % ring_size_);
        }
        to_.query_starts[i + 1] = static_cast<int32_t>(token);
    }
    pad(token, requests.size());
}

// Clears what the step before has left behind these many tokens and requests.
void StepInputs::pad(size_t num_tokens, size_t num_requests) {
    for (int64_t* values : {to_.token_ids, to_.positions, to_.slots})
        std::fill(values + num_tokens, values + std::max(num_tokens, num_tokens_), 0);
    std::fill(to_.places + num_tokens, to_.places + std::max(num_tokens, num_tokens_), -1);
    std::fill(to_.draws + num_tokens, to_.draws + std::max(num_tokens, num_tokens_), Draw{});
    for (int32_t* values : {to_.query_lens, to_.seq_lens, to_.num_computed, to_.state_ids})
        std::fill(values + num_requests, values + std::max(num_requests, num_requests_), 0);
    std::fill(to_.query_starts + num_requests + 1, to_.query_starts + max_tokens_ + 1, static_cast<int32_t>(num_tokens));
    num_tokens_ = num_tokens;
    num_requests_ = num_requests;
}

}  // namespace qanat
