// The memory of a step's tensors: regions of one buffer, given back when their tensor dies. The buffer is asked for once;
// pages of it take memory when they are first written to.
#pragma once

#include <memory>
#include <vector>

#include "memory.hpp"

namespace qanat {

// Gives out regions of a buffer, lowest address first. Several arenas may share a buffer, if what they give out is never
// needed at the same time. Not thread-safe: its callers hold the interpreter's lock.
class Arena {
public:
    static constexpr size_t kAlignment = 64;

    // `size_bytes` is rounded up to the alignment.
    explicit Arena(size_t size_bytes);
    // The same memory, as if nothing of it were given out.
    explicit Arena(const Arena& other) : memory_(other.memory_), free_{{0, other.memory_->size_bytes()}} {}

    // A region, or null where none is large enough: then `num_missed` counts it.
    void* take(size_t size_bytes);
    // Takes back what `take` gave.
    void give_back(void* region, size_t size_bytes);

    // Whether an address lies in its memory, given out or not.
    bool holds(const void* address) const {
        const auto start = reinterpret_cast<uintptr_t>(memory_->data()), at = reinterpret_cast<uintptr_t>(address);
        return at >= start && at - start < memory_->size_bytes();
    }
    size_t size_bytes() const { return memory_->size_bytes(); }
    size_t used_bytes() const { return used_bytes_; }
    size_t peak_bytes() const { return peak_bytes_; }
    size_t num_taken() const { return num_taken_; }
    size_t num_missed() const { return num_missed_; }
    size_t num_holes() const { return free_.size(); }

private:
    struct Hole {
        size_t start, size;
    };

    std::shared_ptr<Buffer> memory_;
    std::vector<Hole> free_;  // ascending, never touching each other
    size_t used_bytes_ = 0, peak_bytes_ = 0, num_taken_ = 0, num_missed_ = 0;
};

// One region; gives itself back.
class Region {
public:
    Region(std::shared_ptr<Arena> arena, void* data, size_t size_bytes)
        : data(data), size_bytes(size_bytes), arena_(std::move(arena)) {}
    ~Region() { arena_->give_back(data, size_bytes); }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    void* const data;
    const size_t size_bytes;

private:
    std::shared_ptr<Arena> arena_;
};

}  // namespace qanat
