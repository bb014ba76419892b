#include "tape.hpp"

#include <chrono>
#include <stdexcept>

namespace qanat {

thread_local Tape* Tape::recording_ = nullptr;
std::atomic<bool> Tape::is_timed_{false};
std::atomic<int64_t> Tape::busy_ns_{0};

void Tape::begin() {
    if (recording_) throw std::logic_error("this thread already records");
    recording_ = this;
}

void Tape::end() {
    if (recording_ == this) recording_ = nullptr;
}

void Tape::replay() const {
    run_one([this] {
        for (const std::function<void()>& op : ops_) op();
    });
}

void Tape::set_timed(bool is_timed) {
    busy_ns_.store(0);
    is_timed_.store(is_timed);
}

int64_t Tape::now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace qanat
