#include "arena.hpp"

#include <algorithm>

namespace qanat {

namespace {
size_t rounded_up(size_t size_bytes) { return (size_bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment; }
}  // namespace

Arena::Arena(size_t size_bytes)
    : memory_(std::make_shared<Buffer>(rounded_up(size_bytes))), free_{{0, memory_->size_bytes()}} {}

void* Arena::take(size_t size_bytes) {
    const size_t size = rounded_up(size_bytes);
    for (size_t i = 0; i < free_.size(); ++i) {
        Hole& hole = free_[i];
        if (hole.size < size) continue;
        void* region = static_cast<char*>(memory_->data()) + hole.start;
        hole.start += size;
        hole.size -= size;
        if (!hole.size) free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
        used_bytes_ += size;
        peak_bytes_ = std::max(peak_bytes_, used_bytes_);
        ++num_taken_;
        return region;
    }
    ++num_missed_;
    return nullptr;
}

void Arena::give_back(void* region, size_t size_bytes) {
    const size_t size = rounded_up(size_bytes);
    const size_t start = static_cast<size_t>(static_cast<char*>(region) - static_cast<char*>(memory_->data()));
    used_bytes_ -= size;
    const auto next = std::lower_bound(free_.begin(), free_.end(), start,
                                       [](const Hole& hole, size_t at) { return hole.start < at; });
    const bool joins_next = next != free_.end() && next->start == start + size;
    const bool joins_last = next != free_.begin() && (next - 1)->start + (next - 1)->size == start;
    if (joins_last && joins_next) {
        (next - 1)->size += size + next->size;
        free_.erase(next);
    } else if (joins_last) {
        (next - 1)->size += size;
    } else if (joins_next) {
        next->start = start;
        next->size += size;
    } else {
        free_.insert(next, {start, size});
    }
}

}  // namespace qanat
