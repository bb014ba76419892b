#include "draft_inputs.hpp"

#include <algorithm>
#include <stdexcept>

#include "position_key.hpp"

namespace qanat {

DraftInputs::DraftInputs(const DraftArrays& arrays, size_t max_tokens, size_t max_requests, size_t num_later,
                         size_t table_width, size_t block_size, size_t ring_size)
    : to_(arrays), max_tokens_(max_tokens), max_requests_(max_requests), num_later_(num_later), table_width_(table_width),
      block_size_(block_size), ring_size_(ring_size) {}

void DraftInputs::fill(const std::vector<DraftRequest>& requests) {
    size_t num_tokens = 0;
    for (const DraftRequest& own : requests) {
        num_tokens += own.end - own.start;
        const size_t num_places = own.end + std::max<size_t>(own.num_drafts, 1) - 1;
        if (own.num_blocks > table_width_ || own.num_drafts > 1 + num_later_ || !own.first || own.first > own.start ||
            own.start >= own.end || num_places > own.num_blocks * block_size_)
            throw std::out_of_range("drafts have no room in their request's blocks");
    }
    if (num_tokens > max_tokens_ || requests.size() > max_requests_)
        throw std::out_of_range("drafts of a step are more than its inputs hold");
    clear();
    size_t num_passes = 1;
    for (const DraftRequest& own : requests) num_passes = std::max(num_passes, own.num_drafts);
    // A row for each request in each pass: those that want no more write where nothing is read.
    for (size_t pass = 1; pass < num_passes; ++pass) {
        std::fill_n(to_.query_lens + pass * max_requests_, requests.size(), 1);
        std::fill_n(to_.seq_lens + pass * max_requests_, requests.size(), 1);
    }
    size_t row = 0;
    for (size_t request = 0; request < requests.size(); ++request) {
        add(requests[request], request, row);
        row += requests[request].end - requests[request].start;
    }
    for (size_t pass = 0; pass <= num_later_; ++pass) {
        int32_t* starts = to_.query_starts + pass * (max_requests_ + 1);
        for (size_t request = 0; request < max_requests_; ++request)
            starts[request + 1] = starts[request] + to_.query_lens[pass * max_requests_ + request];
    }
}

void DraftInputs::clear() {
    for (int64_t* values : {to_.token_ids, to_.positions, to_.slots, to_.sources}) std::fill_n(values, max_tokens_, 0);
    std::fill_n(to_.last_rows, max_requests_, 0);
    for (int64_t* values : {to_.later_positions, to_.later_slots}) std::fill_n(values, num_later_ * max_requests_, 0);
    for (int32_t* values : {to_.query_lens, to_.seq_lens}) std::fill_n(values, (1 + num_later_) * max_requests_, 0);
    std::fill_n(to_.draws, (1 + num_later_) * max_requests_, Draw{});
}

void DraftInputs::add(const DraftRequest& own, size_t request, size_t row) {
    const size_t num_skipped = own.first / block_size_, skipped = num_skipped * block_size_;
    const int32_t* blocks = own.blocks + num_skipped;
    std::copy(blocks, own.blocks + own.num_blocks, to_.block_tables + request * table_width_);
    const auto slot = [&](size_t position) {
        return static_cast<int64_t>(blocks[position / block_size_]) * static_cast<int64_t>(block_size_) +
               static_cast<int64_t>(position % block_size_);
    };
    for (size_t place = own.start; place < own.end; ++place, ++row) {
        const size_t position = place - skipped;
        to_.token_ids[row] = own.tokens[place];
        to_.positions[row] = static_cast<int64_t>(place);
        to_.slots[row] = slot(position);
        to_.sources[row] = static_cast<int64_t>(own.row * ring_size_ + (place - 1) % ring_size_);
    }
    to_.last_rows[request] = static_cast<int64_t>(row) - 1;
    to_.query_lens[request] = static_cast<int32_t>(own.end - own.start);
    to_.seq_lens[request] = static_cast<int32_t>(own.end - skipped);
    for (size_t draft = 0; draft < own.num_drafts; ++draft) {
        Draw& draw = to_.draws[draft * max_requests_ + request];
        draw = *own.draw;
        draw.key = position_key(own.draw->key, own.end + draft);
        if (draft + 1 == own.num_drafts) break;
        const size_t position = own.end + draft - skipped, later = draft * max_requests_ + request;
        to_.later_positions[later] = static_cast<int64_t>(own.end + draft);
        to_.later_slots[later] = slot(position);
        to_.seq_lens[later + max_requests_] = static_cast<int32_t>(position + 1);
    }
}

}  // namespace qanat
