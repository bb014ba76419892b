#include "limits.hpp"

#include <chrono>
#include <stdexcept>

#include "../runtime/runtime.hpp"

namespace qanat {

namespace {

using Clock = std::chrono::steady_clock;

// More multiply-adds than any bound below which the pool leaves work to one thread.
constexpr double kEveryThread = 1e12;
constexpr size_t kGranule = 1024;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double seconds_of(Runtime& runtime, const RateLoop& loop, size_t num_rounds) {
    const auto start = Clock::now();
    runtime.pool().run(runtime.pool().num_threads(), kEveryThread, [&](size_t begin, size_t end) {
        for (size_t thread = begin; thread < end; ++thread) loop.run(num_rounds);
    });
    return seconds_since(start);
}

}  // namespace

#if !defined(__x86_64__) && !defined(__aarch64__)
const std::vector<RateLoop>& all_rate_loops() {
    static const std::vector<RateLoop> none;
    return none;
}

ReadLoop read_loop() {
    return [](const void* data, size_t size_bytes) {
        const size_t* at = static_cast<const size_t*>(data);
        size_t sum = 0;
        for (size_t i = 0; i < size_bytes / sizeof *at; ++i) sum ^= at[i];
        asm volatile("" : : "r"(sum));
    };
}
#endif

bool has_set(const std::string& name) {
    for (const InstructionSet& set : instruction_sets())
        if (name == set.name) return true;
    return false;
}

std::vector<RateLoop> rate_loops() {
    std::vector<RateLoop> found;
    for (const RateLoop& loop : all_rate_loops())
        if (has_set(loop.name)) found.push_back(loop);
    return found;
}

double read_seconds(const void* data, size_t size_bytes) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const ReadLoop loop = read_loop();
    const auto start = Clock::now();
    runtime.pool().run(size_bytes / kGranule, kEveryThread, [&](size_t begin, size_t end) {
        loop(static_cast<const char*>(data) + begin * kGranule, (end - begin) * kGranule);
    });
    return seconds_since(start);
}

double multiply_add_rate(const std::string& name, Operands operands, double seconds) {
    for (const RateLoop& loop : rate_loops()) {
        if (name != loop.name || operands != loop.operands) continue;
        Runtime& runtime = Runtime::get();
        std::lock_guard<std::mutex> turn(runtime.turn());
        size_t num_rounds = 1000;
        double taken = seconds_of(runtime, loop, num_rounds);
        while (taken < seconds) {
            num_rounds = num_rounds * (taken < seconds / 8 ? 4 : 2);
            taken = seconds_of(runtime, loop, num_rounds);
        }
        return loop.per_round * double(num_rounds) * double(runtime.pool().num_threads()) / taken;
    }
    throw std::invalid_argument("this processor has no loop of the instruction set " + name);
}

}  // namespace qanat
