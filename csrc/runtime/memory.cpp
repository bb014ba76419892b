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

#if defined(__linux__)
size_t rounded_up(size_t size_bytes) { return (size_bytes + kHugePage - 1) / kHugePage * kHugePage; }

// Whole huge pages; none of them takes memory before it is written to.
void* map_huge_pages(size_t size_bytes) {
    const size_t own = rounded_up(size_bytes), all = own + kHugePage;
    void* start = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    const uintptr_t first = reinterpret_cast<uintptr_t>(start), chosen = rounded_up(first);
    if (chosen > first) munmap(start, chosen - first);
    if (first + kHugePage > chosen) munmap(reinterpret_cast<void*>(chosen + own), first + kHugePage - chosen);
    // A wish: a system that has none left gives small pages.
    madvise(reinterpret_cast<void*>(chosen), own, MADV_HUGEPAGE);
    return reinterpret_cast<void*>(chosen);
}

// Among what is allocated and freed while a model is loaded, large pieces would leave holes that nobody uses again.
bool is_mapped(size_t size_bytes) { return size_bytes >= kHugePage; }
#endif

}  // namespace

Buffer::Buffer(size_t size_bytes) : data_(nullptr), size_bytes_(size_bytes) {
    if (!size_bytes) return;
#if defined(__linux__)
    if (is_mapped(size_bytes)) {
        data_ = map_huge_pages(size_bytes);
        return;
    }
#endif
    if (posix_memalign(&data_, size_bytes >= kHugePage ? kHugePage : 64, size_bytes)) throw std::bad_alloc();
}

Buffer::~Buffer() {
#if defined(__linux__)
    if (data_ && is_mapped(size_bytes_)) {
        munmap(data_, rounded_up(size_bytes_));
        return;
    }
#endif
    std::free(data_);
}

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
