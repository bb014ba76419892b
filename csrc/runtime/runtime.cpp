#include "runtime.hpp"

#include <pthread.h>
#include <unistd.h>

#include <stdexcept>

namespace qanat {

// A process is not copied while an op runs: its copy has this thread only, and must find nobody's turn taken.
Runtime::Runtime() : set_(instruction_sets().back()), pool_(new Pool(1, {})), pool_owner_(getpid()) {
    const auto begin_copy = [] {
        get().pool_->stay_alone();
        get().turn_.unlock();
    };
    pthread_atfork([] { get().turn_.lock(); }, [] { get().turn_.unlock(); }, begin_copy);
}

Runtime& Runtime::get() {
    // Never destroyed: its threads would have to end while the interpreter is already taken apart.
    static Runtime* runtime = new Runtime();
    return *runtime;
}

void Runtime::configure(const std::string& name, size_t num_threads, const std::vector<int>& cpus) {
    const std::vector<InstructionSet> sets = instruction_sets();
    const InstructionSet* chosen = name.empty() ? &sets.back() : nullptr;
    for (const InstructionSet& set : sets)
        if (name == set.name) chosen = &set;
    if (!chosen) throw std::invalid_argument("this processor does not have the instruction set " + name);
    std::lock_guard<std::mutex> turn(turn_);
    std::unique_ptr<Pool> pool(new Pool(num_threads < 1 ? 1 : num_threads, cpus));
    set_ = *chosen;
    // A copy of the process has no threads that it could wait for; what is left of the pool stays where it is.
    if (pool_owner_ != getpid()) pool_.release();
    pool_owner_ = getpid();
    pool_ = std::move(pool);
}

}  // namespace qanat
