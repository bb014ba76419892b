// The threads that compute. A meeting spins for at most 50 us and then parks, so that an idle process costs nothing and
// a thread without a core does not burn another's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace qanat {

// Rounding to nearest even, denormal numbers kept, nothing trapped (rule R10); restored when it goes out of scope.
class FloatingPointScope {
public:
    FloatingPointScope();
    ~FloatingPointScope();
    FloatingPointScope(const FloatingPointScope&) = delete;
    FloatingPointScope& operator=(const FloatingPointScope&) = delete;

private:
    unsigned long before_;
};

class Pool {
public:
    // `num_threads` counts the caller. Thread i (from 1 on) is pinned to cpus[i] where there is one.
    Pool(size_t num_threads, const std::vector<int>& cpus);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    size_t num_threads() const { return workers_.size() + 1; }
    // How many of the workers could not be pinned.
    size_t num_unpinned() const { return num_unpinned_; }

    // Calls part(begin, end) on each thread for its share of [0, num_tasks); returns when all are done. `cost` is the
    // number of multiply-adds in all: little work stays on the caller's thread.
    template <class Part>
    void run(size_t num_tasks, double cost, const Part& part) {
        const Job job{[](const void* own, size_t begin, size_t end) { (*static_cast<const Part*>(own))(begin, end); },
                      &part, num_tasks};
        run_job(job, cost);
    }

private:
    struct Job {
        void (*call)(const void*, size_t, size_t);
        const void* part;
        size_t num_tasks;
    };

    void run_job(const Job& job, double cost);
    void work(size_t thread);
    void do_share(const Job& job, size_t thread) const;

    std::vector<std::thread> workers_;
    size_t num_unpinned_ = 0;
    Job job_{};
    std::atomic<bool> is_closing_{false};
    // Changes when there is a job; what waits for it sleeps on `began_`, and what waits for its end on `ended_`.
    std::atomic<unsigned> generation_{0};
    std::atomic<size_t> num_running_{0};
    std::atomic<int> num_parked_{0};
    std::atomic<bool> is_caller_parked_{false};
    std::mutex mutex_;
    std::condition_variable began_, ended_;
};

}  // namespace qanat
