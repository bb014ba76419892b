#include "runtime.hpp"

#include <stdexcept>

namespace qanat {

Runtime::Runtime() : set_(instruction_sets().back()), pool_(new Pool(1, {})) {}

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
    set_ = *chosen;
    pool_.reset();
    pool_.reset(new Pool(num_threads < 1 ? 1 : num_threads, cpus));
}

}  // namespace qanat
