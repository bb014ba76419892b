#include "machine.hpp"

#if defined(QANAT_HAS_X86)
#include <cpuid.h>
#elif defined(__linux__) && defined(QANAT_HAS_ARM)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#if defined(QANAT_HAS_AMX) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace qanat {

namespace {

#if defined(QANAT_HAS_AVX_VNNI)
// The compiler's own check does not know this one yet.
bool has_avx_vnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#if defined(QANAT_HAS_AMX)
// Linux gives a process the tile registers only if it asks; threads that are started later have them too.
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}
#endif

#if defined(QANAT_HAS_ARM)
#if defined(__linux__)
bool has_dotprod() { return getauxval(AT_HWCAP) & HWCAP_ASIMDDP; }
bool has_i8mm() { return getauxval(AT_HWCAP2) & HWCAP2_I8MM; }
#elif defined(__APPLE__)
bool has_feature(const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool has_dotprod() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return has_feature("hw.optional.arm.FEAT_I8MM"); }
#else
bool has_dotprod() { return false; }
bool has_i8mm() { return false; }
#endif
#endif

}  // namespace

std::vector<InstructionSet> instruction_sets() {
    std::vector<InstructionSet> found = {{"scalar", &scalar_kernels(), &scalar_quantised()}};
#if defined(QANAT_HAS_X86)
    // The compiler's own check also asks whether the system saves the wide registers.
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        found.push_back({"avx2", &avx2_kernels(), &avx2_quantised()});
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#if defined(QANAT_HAS_AVX_VNNI)
    if (has_avx_vnni() && found.size() == 2) found.push_back({"avx_vnni", &avx2_kernels(), &avx_vnni_quantised()});
#endif
    const bool has_avx2 = found.size() >= 2;
    if (has_avx512 && has_avx2) found.push_back({"avx512", &avx512_kernels(), &avx512_quantised()});
    const bool has_vnni = has_avx512 && has_avx2 && __builtin_cpu_supports("avx512vnni");
    if (has_vnni) found.push_back({"avx512_vnni", &avx512_kernels(), &avx512_vnni_quantised()});
#if defined(QANAT_HAS_AMX)
    if (has_vnni && __builtin_cpu_supports("amx-int8") && may_use_tiles())
        found.push_back({"amx", &avx512_kernels(), &amx_quantised()});
#endif
#elif defined(QANAT_HAS_ARM)
    // Every AArch64 processor that runs a system for programs has it.
    found.push_back({"neon", &neon_kernels(), &neon_quantised()});
    if (has_dotprod()) found.push_back({"neon_dotprod", &neon_kernels(), &neon_dotprod_quantised()});
    if (has_dotprod() && has_i8mm()) found.push_back({"neon_i8mm", &neon_kernels(), &neon_i8mm_quantised()});
#endif
    return found;
}

}  // namespace qanat
