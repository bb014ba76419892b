// Jobs of all sizes on pools of several sizes, with and without pauses between them: every task is done exactly once. To be
// run plain and under a thread sanitiser. `pool fork` also goes on in copies of the process.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../runtime/pool.hpp"
#include "values.hpp"

namespace {

using qanat::Generator;
using qanat::Pool;

void fail(const char* what) {
    std::fprintf(stderr, "pool: %s\n", what);
    std::_Exit(1);
}

// Writes without atomics, so that a sanitiser sees who is not ordered behind whom.
void run_job(Pool& pool, Generator& generator, std::vector<unsigned>& done) {
    const size_t num_tasks = generator.below(done.size() + 1);
    const double cost = double(generator.below(1000000));
    const bool is_slow = generator.below(8) == 0;  // slow enough that others are in the middle when the caller has finished
    pool.run(num_tasks, cost, [&](size_t begin, size_t end) {
        for (size_t task = begin; task < end; ++task) {
            for (int i = 0; is_slow && i < 50; ++i) qanat::relax();
            ++done[task];
        }
    });
    for (size_t task = 0; task < done.size(); ++task)
        if (done[task] != (task < num_tasks ? 1 : 0)) fail("a task was left out, or done twice");
    for (unsigned& count : done) count = 0;
}

void run_jobs(size_t num_threads, size_t num_jobs) {
    Generator generator("pool" + std::to_string(num_threads));
    Pool pool(num_threads, {});
    pool.set_counting(num_threads % 2 == 0);
    std::vector<unsigned> done(700);
    for (size_t job = 0; job < num_jobs; ++job) {
        run_job(pool, generator, done);
        // Long enough to find workers awake, about to sleep, and asleep.
        if (generator.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(generator.below(120)));
    }
    if (num_threads % 2 == 0 && pool.waits().at("run_job").num_jobs != num_jobs) fail("jobs were not counted");
}

// A pool that ends while its threads still look for a first job, or have just had one.
void open_and_close() {
    for (size_t i = 0; i < 50; ++i) {
        Pool pool(4, {});
        if (i % 2) pool.run(64, 1e6, [](size_t, size_t) {});
    }
}

// A copy of the process has the pool without its threads: what they had as their shares, the caller does.
void run_copies() {
    Pool pool(3, {});
    Generator generator("copies");
    std::vector<unsigned> done(700);
    for (int copy = 0; copy < 20; ++copy) {
        for (int job = 0; job < 20; ++job) run_job(pool, generator, done);
        const pid_t child = fork();
        if (child == 0) {
            for (int job = 0; job < 20; ++job) run_job(pool, generator, done);
            std::_Exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) fail("a copy of the process failed");
    }
}

}  // namespace

int main(int argc, char** argv) {
    constexpr size_t kNumJobs = 1500;
    for (const size_t num_threads : {1u, 2u, 3u, 8u}) run_jobs(num_threads, kNumJobs);
    open_and_close();
    if (argc > 1 && std::strcmp(argv[1], "fork") == 0) run_copies();
    std::printf("pool: every task of %zu jobs was done once\n", 4 * kNumJobs);
    return 0;
}
