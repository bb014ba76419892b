// A recording of ops with their arguments: what a step calls once from Python is then run again without it. The arguments
// are addresses, so replays read what lies there by then; whoever records keeps that memory in its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace qanat {

class Tape {
public:
    // Runs an op; the tape that this thread records, if any, keeps it.
    template <class Op>
    static void submit(Op op) {
        run_one(op);
        if (recording_) recording_->ops_.emplace_back(std::move(op));
    }

    // From here to `end` this thread's ops are kept. Throws std::logic_error if the thread already records.
    void begin();
    void end();
    // Runs all of them in order, on this thread and the pool's.
    void replay() const;
    size_t num_ops() const { return ops_.size(); }

    // Whether ops are timed, and the nanoseconds that they took since it was switched on, of all threads that call them. A
    // replay is timed as one: the clock would take longer than what lies between its ops.
    static void set_timed(bool is_timed);
    static int64_t busy_ns() { return busy_ns_.load(std::memory_order_relaxed); }

private:
    static int64_t now_ns();
    template <class Op>
    static void run_one(const Op& op) {
        if (!is_timed_.load(std::memory_order_relaxed)) {
            op();
            return;
        }
        const int64_t start = now_ns();
        op();
        busy_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
    }

    static thread_local Tape* recording_;
    static std::atomic<bool> is_timed_;
    static std::atomic<int64_t> busy_ns_;
    std::vector<std::function<void()>> ops_;
};

}  // namespace qanat
