#include "pool.hpp"

#include <algorithm>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace qanat {

namespace {

// In multiply-adds. Below the first, telling others costs more than it saves; waking one that sleeps takes the system
// longer still, which jobs in a row may earn together; pieces below the last cost more in taking than in doing.
constexpr double kMinSharedCost = 30000, kMinWakeCost = 150000, kMinPieceCost = 8000;

constexpr uint32_t kClosing = ~0u;  // in place of a job's number: the threads end

int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

uint64_t range_of(uint64_t begin, uint64_t end) { return begin << 32 | end; }

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

Pool::Pool(size_t num_threads, const std::vector<int>& cpus) : shares_(num_threads) {
    workers_.reserve(num_threads);
    try {
        for (size_t thread = 1; thread < num_threads; ++thread) {
            workers_.emplace_back([this, thread] { work(thread); });
            if (thread < cpus.size() && !pin(workers_.back(), cpus[thread])) ++num_unpinned_;
        }
    } catch (...) {
        close();
        throw;
    }
}

Pool::~Pool() { close(); }

void Pool::close() {
    open_.store(kClosing);
    wake(open_, static_cast<uint32_t>(workers_.size()));
    for (std::thread& worker : workers_) worker.join();
}

void Pool::set_counting(bool is_counting) {
    is_counting_ = is_counting;
    if (is_counting) waits_.clear();
}

void Pool::run_job(Job& job, double cost, const char* op) {
    const bool is_alone = workers_.empty() || is_without_workers_ || job.num_tasks < 2 || cost < kMinSharedCost;
    job.is_timed = is_counting_;
    const int64_t start = job.is_timed ? now_ns() : 0;
    int64_t finished = 0;
    if (is_alone) {
        run_alone(job);
    } else {
        const double task_cost = cost / double(job.num_tasks);
        job.num_shares = std::min(num_threads(), std::max<size_t>(2, static_cast<size_t>(cost / kMinPieceCost)));
        job.min_tasks = std::max<size_t>(1, static_cast<size_t>(kMinPieceCost / task_cost));
        offer(job);
        wake_workers(cost);
        do_tasks(0);
        if (job.is_timed) finished = now_ns();
        open_.store(0);
        await_workers();
    }
    if (!job.is_timed) return;
    const int64_t end = now_ns();
    Waits& waits = waits_[op];
    ++waits.num_jobs;
    waits.num_shared += is_alone ? 0 : 1;
    waits.elapsed_ns += end - start;
    waits.wait_ns += is_alone ? 0 : end - finished;
    waits.busy_ns += is_alone ? end - start : busy_ns_.exchange(0);
}

void Pool::run_alone(const Job& job) const {
    const FloatingPointScope scope;
    if (job.num_tasks > 0) job.call(job.part, 0, job.num_tasks);
}

// Nobody is inside here, so that the job and the shares can be written.
void Pool::offer(const Job& job) {
    job_ = job;
    for (size_t i = 0; i < job.num_shares; ++i) {
        const size_t begin = job.num_tasks * i / job.num_shares, end = job.num_tasks * (i + 1) / job.num_shares;
        shares_[i].left.store(range_of(begin, end), std::memory_order_relaxed);
    }
    if (++last_job_ == kClosing) last_job_ = 1;
    open_.store(last_job_);
}

// A worker counts itself as parked before it looks at `open_` for the last time, so either it sees the new job or this
// sees it parked.
void Pool::wake_workers(double cost) {
    const uint32_t num_parked = num_parked_.load();
    lonely_cost_ = num_parked > 0 ? lonely_cost_ + cost : 0;
    if (lonely_cost_ < kMinWakeCost) return;
    wake(open_, static_cast<uint32_t>(std::min(double(num_parked), lonely_cost_ / kMinWakeCost)));
    lonely_cost_ = 0;
}

// A worker enters before it looks whether the job is still open, so whoever is not seen here will see that it is not.
void Pool::await_workers() {
    if (spin_until([this] { return num_inside_.load() == 0; })) return;
    is_caller_parked_.store(true);
    while (const uint32_t num_inside = num_inside_.load()) park(num_inside_, num_inside);
    is_caller_parked_.store(false);
}

void Pool::do_tasks(size_t thread) {
    const int64_t start = job_.is_timed ? now_ns() : 0;
    const FloatingPointScope scope;
    for (size_t i = 0; i < job_.num_shares; ++i) drain(shares_[(thread + i) % job_.num_shares], i == 0);
    if (job_.is_timed) busy_ns_.fetch_add(now_ns() - start, std::memory_order_relaxed);
}

// Pieces shrink with what is left, so that all threads come to the end at about the same time. The owner takes from the
// front, others from the back.
void Pool::drain(Share& share, bool is_own) {
    uint64_t left = share.left.load(std::memory_order_relaxed);
    while (true) {
        const uint64_t begin = left >> 32, end = left & 0xffffffffu;
        if (begin >= end) return;
        const uint64_t count = std::min(end - begin, std::max<uint64_t>(job_.min_tasks, (end - begin) / 4));
        const uint64_t rest = is_own ? range_of(begin + count, end) : range_of(begin, end - count);
        if (!share.left.compare_exchange_weak(left, rest, std::memory_order_relaxed)) continue;
        if (is_own) job_.call(job_.part, begin, begin + count);
        else job_.call(job_.part, end - count, end);
        left = share.left.load(std::memory_order_relaxed);
    }
}

void Pool::work(size_t thread) {
    uint32_t seen = 0;
    while (await_job(seen)) {
        num_inside_.fetch_add(1);
        const uint32_t number = open_.load();
        if (number != 0 && number != kClosing) {
            do_tasks(thread);
            seen = number;
        }
        if (num_inside_.fetch_sub(1) == 1 && is_caller_parked_.load()) wake(num_inside_, 1);
    }
}

// False if the threads are to end.
bool Pool::await_job(uint32_t seen) {
    const auto is_new = [seen](uint32_t number) { return number != 0 && number != seen; };
    if (!spin_until([&] { return is_new(open_.load()); })) {
        num_parked_.fetch_add(1);
        for (uint32_t number = open_.load(); !is_new(number); number = open_.load()) park(open_, number);
        num_parked_.fetch_sub(1);
    }
    return open_.load() != kClosing;
}

}  // namespace qanat
