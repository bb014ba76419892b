#include "parking.hpp"

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace qanat {

#if defined(__linux__)

static_assert(sizeof(Word) == sizeof(uint32_t), "the kernel reads the word itself");

void park(const Word& word, uint32_t value) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake(const Word& word, uint32_t max_threads) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, max_threads, nullptr, nullptr, 0);
}

#else

namespace {

// One for all words: who is woken for another's sake looks at its own word and sleeps again.
struct Bed {
    std::mutex mutex;
    std::condition_variable changed;
};

// Never destroyed: threads may sleep in it when the process ends.
Bed& bed() {
    static Bed* own = new Bed();
    return *own;
}

}  // namespace

void park(const Word& word, uint32_t value) {
    std::unique_lock<std::mutex> lock(bed().mutex);
    if (word.load() == value) bed().changed.wait(lock);
}

void wake(const Word&, uint32_t) {
    std::lock_guard<std::mutex> lock(bed().mutex);
    bed().changed.notify_all();
}

#endif

}  // namespace qanat
