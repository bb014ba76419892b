// Runs every kernel of every instruction set that this processor has on generated inputs, and prints a line
// "set case checksum" for each. Equal cases have equal checksums on every machine (rule R10): scripts/check-native
// compares the sets of two architectures.
#include <cinttypes>
#include <cstdio>

#include "../runtime/machine.hpp"
#include "../runtime/pool.hpp"
#include "parity.hpp"

namespace qanat {

std::string Variant::name() const {
    return std::string(is_bf16 ? "bf16" : "fp32") + (has_specials ? ",specials" : "");
}

Report::~Report() {
    std::printf("%s %s %016" PRIx64 "\n", set_, name_.c_str(), checksum_.sum());
}

}  // namespace qanat

int main() {
    using namespace qanat;
    const FloatingPointScope scope;
    for (const InstructionSet& set : instruction_sets())
        for (const Case& kind : all_cases())
            for (const bool is_bf16 : {false, true})
                for (const bool has_specials : {false, true}) kind.run(set, {is_bf16, has_specials});
}
