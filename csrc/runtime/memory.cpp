#include "memory.hpp"

#include <cstdlib>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace qanat {

namespace {
constexpr size_t kHugePage = size_t(2) << 20;
}

Buffer::Buffer(size_t size_bytes) : data_(nullptr), size_bytes_(size_bytes) {
    if (!size_bytes) return;
    const size_t alignment = size_bytes >= kHugePage ? kHugePage : 64;
    if (posix_memalign(&data_, alignment, size_bytes)) throw std::bad_alloc();
#if defined(__linux__)
    // A wish: a system that has none left gives small pages.
    if (alignment == kHugePage) madvise(data_, size_bytes, MADV_HUGEPAGE);
#endif
}

Buffer::~Buffer() { std::free(data_); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
}

void Scratch::reset(size_t size_bytes) {
    used_ = 0;
    if (size_bytes > buffer_.size_bytes()) {
        buffer_ = Buffer(0);
        buffer_ = Buffer(size_bytes + size_bytes / 4);
    }
}

}  // namespace qanat
