// Sleeping until a word changes, and waking who sleeps: the kernel's futex on Linux, a condition variable elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace qanat {

using Word = std::atomic<uint32_t>;

// Sleeps while the word has this value; may return earlier, so the caller looks again.
void park(const Word& word, uint32_t value);
// Wakes some of those that sleep on the word, which the caller has changed before.
void wake(const Word& word, uint32_t max_threads);

// A meeting spins for as long before it sleeps.
constexpr auto kSpin = std::chrono::microseconds(50);

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// True as soon as `is_met` is; false if it was not within the time that a meeting may spin.
template <class Condition>
bool spin_until(const Condition& is_met) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (is_met()) return true;
            relax();
        }
    } while (std::chrono::steady_clock::now() < end);
    return is_met();
}

}  // namespace qanat
