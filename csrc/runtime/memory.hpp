// Memory that outlives a call: packed matrices on huge pages where the system gives them, and scratch that only grows.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qanat {

// Aligned bytes that are freed with it; large ones ask for huge pages.
class Buffer {
public:
    explicit Buffer(size_t size_bytes);
    ~Buffer();
    Buffer(Buffer&& other) noexcept : data_(other.data_), size_bytes_(other.size_bytes_) { other.data_ = nullptr; }
    Buffer& operator=(Buffer&& other) noexcept;
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    void* data() const { return data_; }
    size_t size_bytes() const { return size_bytes_; }

private:
    void* data_;
    size_t size_bytes_;
};

// Scratch of one op: taken piece by piece, all given back at once by `reset`. A pointer is valid until then.
class Scratch {
public:
    Scratch() : buffer_(0) {}
    // Makes room for everything that is taken until the next call; earlier pieces are gone.
    void reset(size_t size_bytes);
    template <class T>
    T* take(size_t count) {
        T* piece = reinterpret_cast<T*>(static_cast<char*>(buffer_.data()) + used_);
        used_ += size_of<T>(count);
        return piece;
    }
    // What `take` uses up for as many.
    template <class T>
    static size_t size_of(size_t count) {
        return (count * sizeof(T) + 63) / 64 * 64;
    }

private:
    Buffer buffer_;
    size_t used_ = 0;
};

}  // namespace qanat
