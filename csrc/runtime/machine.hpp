// Which instruction sets this processor has, and the kernels that go with them.
#pragma once

#include <string>
#include <vector>

#include "../kernels/arguments.hpp"

namespace qanat {

struct InstructionSet {
    const char* name;
    const KernelTable* kernels;
    const QuantisedTable* quantised;
};

// What the processor and the system support, worst first; the first is "scalar".
std::vector<InstructionSet> instruction_sets();

}  // namespace qanat
