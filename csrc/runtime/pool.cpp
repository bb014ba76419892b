#include "pool.hpp"

#include <chrono>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qanat {

namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
// Below this many multiply-adds waking the others costs more than it saves.
constexpr double kMinSharedCost = 60000;

void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// True as soon as `is_met` is; false if it was not within the time that a meeting may spin.
template <class Condition>
bool spin_until(const Condition& is_met) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (is_met()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return is_met();
}

bool pin(std::thread& thread, int cpu) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(thread.native_handle(), sizeof set, &set) == 0;
#else
    (void)thread, (void)cpu;
    return false;
#endif
}

}  // namespace

FloatingPointScope::FloatingPointScope() {
#if defined(__x86_64__)
    before_ = _mm_getcsr();
    _mm_setcsr(0x1f80);
#elif defined(__aarch64__)
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(0ul));
#else
    before_ = 0;
#endif
}

FloatingPointScope::~FloatingPointScope() {
#if defined(__x86_64__)
    _mm_setcsr(static_cast<unsigned>(before_));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(before_));
#endif
}

Pool::Pool(size_t num_threads, const std::vector<int>& cpus) {
    for (size_t thread = 1; thread < num_threads; ++thread) {
        workers_.emplace_back([this, thread] { work(thread); });
        if (thread < cpus.size() && !pin(workers_.back(), cpus[thread])) ++num_unpinned_;
    }
}

Pool::~Pool() {
    is_closing_.store(true);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        generation_.fetch_add(1);
    }
    began_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void Pool::do_share(const Job& job, size_t thread) const {
    const size_t all = num_threads();
    const size_t begin = job.num_tasks * thread / all, end = job.num_tasks * (thread + 1) / all;
    if (begin == end) return;
    const FloatingPointScope scope;
    job.call(job.part, begin, end);
}

void Pool::run_job(const Job& job, double cost) {
    if (workers_.empty() || job.num_tasks < 2 || cost < kMinSharedCost) {
        const FloatingPointScope scope;
        if (job.num_tasks > 0) job.call(job.part, 0, job.num_tasks);
        return;
    }
    job_ = job;
    num_running_.store(workers_.size());
    generation_.fetch_add(1);
    // A worker counts itself as parked before it looks at the generation for the last time, so either it sees the new
    // one or this sees it parked.
    if (num_parked_.load() > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        began_.notify_all();
    }
    do_share(job, 0);
    const auto is_done = [this] { return num_running_.load() == 0; };
    if (spin_until(is_done)) return;
    std::unique_lock<std::mutex> lock(mutex_);
    is_caller_parked_.store(true);
    ended_.wait(lock, is_done);
    is_caller_parked_.store(false);
}

void Pool::work(size_t thread) {
    unsigned seen = 0;
    const auto has_begun = [this, &seen] { return generation_.load() != seen; };
    while (true) {
        if (!spin_until(has_begun)) {
            std::unique_lock<std::mutex> lock(mutex_);
            num_parked_.fetch_add(1);
            began_.wait(lock, has_begun);
            num_parked_.fetch_sub(1);
        }
        if (is_closing_.load()) return;
        ++seen;
        do_share(job_, thread);
        if (num_running_.fetch_sub(1) == 1 && is_caller_parked_.load()) {
            std::lock_guard<std::mutex> lock(mutex_);
            ended_.notify_one();
        }
    }
}

}  // namespace qanat
