// The one place that ops share: chosen kernels, threads, scratch. Ops of several Python threads take turns.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "machine.hpp"
#include "memory.hpp"
#include "pool.hpp"

namespace qanat {

class Runtime {
public:
    static Runtime& get();

    // Chooses the instruction set (the best one where empty) and starts the threads anew.
    // Throws std::invalid_argument if this processor does not have it, std::system_error if the system gives no such
    // number of threads; all stays as it was then.
    void configure(const std::string& name, size_t num_threads, const std::vector<int>& cpus);

    const KernelTable& kernels() const { return *set_.kernels; }
    const QuantisedTable& quantised() const { return *set_.quantised; }
    const char* name() const { return set_.name; }
    Pool& pool() { return *pool_; }
    Scratch& scratch() { return scratch_; }
    std::mutex& turn() { return turn_; }

private:
    Runtime();

    InstructionSet set_;
    std::unique_ptr<Pool> pool_;
    int pool_owner_;  // process that made it
    Scratch scratch_;
    std::mutex turn_;
};

}  // namespace qanat
