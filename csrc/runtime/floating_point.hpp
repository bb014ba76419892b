// How a thread rounds while it computes.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qanat {

// Rounding to nearest even, denormal numbers kept, nothing trapped (rule R10); restored when it goes out of scope.
class FloatingPointScope {
public:
    FloatingPointScope() {
#if defined(__x86_64__)
        before_ = _mm_getcsr();
        _mm_setcsr(0x1f80);
#elif defined(__aarch64__)
        asm volatile("mrs %0, fpcr" : "=r"(before_) : : "memory");
        asm volatile("msr fpcr, %0" : : "r"(0ul) : "memory");
#endif
    }
    ~FloatingPointScope() {
#if defined(__x86_64__)
        _mm_setcsr(static_cast<unsigned>(before_));
#elif defined(__aarch64__)
        asm volatile("msr fpcr, %0" : : "r"(before_) : "memory");
#endif
    }
    FloatingPointScope(const FloatingPointScope&) = delete;
    FloatingPointScope& operator=(const FloatingPointScope&) = delete;

private:
    unsigned long before_ = 0;
};

}  // namespace qanat
