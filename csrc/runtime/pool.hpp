// The threads that compute. A job's tasks are cut into a share for each thread, so that a thread reads the same weights in
// every step; who has finished its own share takes from the others'. The caller never waits for a thread that has not
// begun, only for pieces that others are in the middle of: a thread without a core delays nobody for longer than that.
// A meeting spins for at most 50 us and then parks, so that an idle process costs nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "floating_point.hpp"
#include "parking.hpp"

namespace qanat {

// What the jobs of one op have taken since counting was switched on.
struct Waits {
    size_t num_jobs = 0, num_shared = 0;  // shared: offered to other threads
    int64_t elapsed_ns = 0;               // of the caller
    int64_t wait_ns = 0;                  // of it, after the caller had run out of tasks
    int64_t busy_ns = 0;                  // of all threads
};

class Pool {
public:
    // `num_threads` counts the caller. Thread i (from 1 on) is pinned to cpus[i] where there is one. Throws
    // std::system_error if the system gives no more threads; those that run are ended first.
    Pool(size_t num_threads, const std::vector<int>& cpus);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    size_t num_threads() const { return workers_.size() + 1; }
    // In a copy of the process: no worker came along, so that jobs stay on the caller's thread.
    void stay_alone() { is_without_workers_ = true; }
    // How many of the workers could not be pinned.
    size_t num_unpinned() const { return num_unpinned_; }

    // Calls part(begin, end) until each task of [0, num_tasks) is done, on whichever threads; returns when all are. `cost`
    // is the number of multiply-adds in all: little work stays on the caller's thread. One job at a time.
    template <class Part>
    void run(size_t num_tasks, double cost, const Part& part, const char* op = __builtin_FUNCTION()) {
        Job job{};
        job.call = [](const void* own, size_t begin, size_t end) { (*static_cast<const Part*>(own))(begin, end); };
        job.part = &part;
        job.num_tasks = num_tasks;
        run_job(job, cost, op);
    }

    // Whether jobs are timed, by op; switching it on begins anew.
    void set_counting(bool is_counting);
    const std::map<std::string, Waits>& waits() const { return waits_; }

private:
    struct Job {
        void (*call)(const void*, size_t, size_t);
        const void* part;
        size_t num_tasks, num_shares, min_tasks;  // min_tasks: of a piece
        bool is_timed;
    };
    // The tasks [upper half, lower half of the word) of a share that nobody has taken.
    struct alignas(64) Share {
        std::atomic<uint64_t> left{0};
    };

    void close();
    void run_job(Job& job, double cost, const char* op);
    void run_alone(const Job& job) const;
    void offer(const Job& job);
    void wake_workers(double cost);
    void await_workers();
    void do_tasks(size_t thread);
    void drain(Share& share, bool is_own);
    void work(size_t thread);
    bool await_job(uint32_t seen);

    std::vector<std::thread> workers_;
    size_t num_unpinned_ = 0;
    Job job_{};
    std::vector<Share> shares_;
    // The number of the job that threads may enter; 0 between jobs. Threads without one park on it.
    alignas(64) Word open_{0};
    // Threads that are inside a job, or find out that it is over. The caller parks on it.
    alignas(64) Word num_inside_{0};
    std::atomic<uint32_t> num_parked_{0};
    std::atomic<bool> is_caller_parked_{false};
    std::atomic<int64_t> busy_ns_{0};
    uint32_t last_job_ = 0;
    double lonely_cost_ = 0;  // of jobs in a row that parked threads were not woken for
    bool is_without_workers_ = false;
    bool is_counting_ = false;
    std::map<std::string, Waits> waits_;
};

}  // namespace qanat
