#include "machine.hpp"

namespace qanat {

std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> found = {{"scalar", &scalar_kernels(), &scalar_quantised()}};
#if defined(QANAT_HAS_X86)
    // The compiler's own check also asks whether the system saves the wide registers.
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found.push_back({"avx2", &avx2_kernels(), &avx2_quantised()});
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has_avx512 && found.size() == 2) found.push_back({"avx512", &avx512_kernels(), &avx512_quantised()});
#elif defined(QANAT_HAS_ARM)
    // Every AArch64 processor that runs a system for programs has it.
    found.push_back({"neon", &neon_kernels(), &neon_quantised()});
#endif
    return found;
}

}  // namespace qanat
