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
// Smaller pieces come from the allocator. Larger ones have pages of their own: among what is allocated and freed while
// a model is loaded, they would leave holes that nobody uses again.
constexpr size_t kMinMapped = size_t(128) << 10;

size_t mapped_bytes(size_t size_bytes) {
    constexpr size_t kLargestPage = size_t(64) << 10;  // Of Linux on aarch64.
    return (size_bytes + kLargestPage - 1) / kLargestPage * kLargestPage;
}

// Pages for so many bytes, from a multiple of the alignment on.
void* map_pages(size_t size_bytes, size_t alignment) {
    const size_t own = mapped_bytes(size_bytes), all = own + alignment;
    void* start = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    const uintptr_t first = reinterpret_cast<uintptr_t>(start);
    const uintptr_t chosen = (first + alignment - 1) / alignment * alignment;
    if (chosen > first) munmap(start, chosen - first);
    const uintptr_t end = chosen + own;
    if (first + all > end) munmap(reinterpret_cast<void*>(end), first + all - end);
    return reinterpret_cast<void*>(chosen);
}
#endif

}  // namespace

Buffer::Buffer(size_t size_bytes) : data_(nullptr), size_bytes_(size_bytes) {
    if (!size_bytes) return;
#if defined(__linux__)
    if (size_bytes >= kMinMapped) {
        const bool has_huge_pages = size_bytes >= kHugePage;
        data_ = map_pages(size_bytes, has_huge_pages ? kHugePage : kMinMapped);
        // A wish: a system that has none left gives small pages. The last, broken one stays small: whole, it would take
        // memory that nothing lies in.
        if (has_huge_pages) madvise(data_, size_bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
        return;
    }
#endif
    if (posix_memalign(&data_, size_bytes >= kHugePage ? kHugePage : 64, size_bytes)) throw std::bad_alloc();
}

Buffer::~Buffer() {
#if defined(__linux__)
    if (data_ && size_bytes_ >= kMinMapped) {
        munmap(data_, mapped_bytes(size_bytes_));
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
