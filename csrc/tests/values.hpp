// Arrays of generated values, and checksums of results: the same on every machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../kernels/arguments.hpp"

namespace qanat {

// A fixed sequence of 64-bit words for each name (splitmix: Steele, Lea and Flood 2014).
class Generator {
public:
    explicit Generator(const std::string& name) {
        for (const char letter : name) state_ = (state_ ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
    }
    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15ull;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    size_t below(size_t end) { return static_cast<size_t>(next() % end); }

private:
    uint64_t state_ = 0xcbf29ce484222325ull;
};

inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

// fp32 or bf16 values as the kernels read them.
class Values {
public:
    Values(size_t count, bool is_bf16) : count_(count), is_bf16_(is_bf16), bytes_(count * (is_bf16 ? 2 : 4)) {}

    // Between -2 and 2; with `has_specials` one in 29 is an infinity, not a number, denormal, huge, or half way between
    // two bf16 numbers.
    Values(Generator& generator, size_t count, bool is_bf16, bool has_specials = false) : Values(count, is_bf16) {
        for (size_t i = 0; i < count; ++i) {
            const float plain = static_cast<float>(static_cast<int64_t>(generator.next() % 4000001) - 2000000) * 1e-6f;
            set(i, has_specials && generator.below(29) == 0 ? special(generator) : bits_of_float(plain));
        }
    }

    // Bits of an fp32 number; of them bf16 keeps the upper half.
    void set(size_t i, uint32_t bits) {
        if (is_bf16_) reinterpret_cast<uint16_t*>(bytes_.data())[i] = static_cast<uint16_t>(bits >> 16);
        else reinterpret_cast<uint32_t*>(bytes_.data())[i] = bits;
    }
    uint32_t bits(size_t i) const {
        if (is_bf16_) return static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(bytes_.data())[i]) << 16;
        return reinterpret_cast<const uint32_t*>(bytes_.data())[i];
    }
    void* data() { return bytes_.data(); }
    template <class T>
    T* as() { return reinterpret_cast<T*>(bytes_.data()); }
    size_t count() const { return count_; }
    bool is_bf16() const { return is_bf16_; }
    // Rows [T, num_inner, size] of it.
    Rows rows(size_t num_inner, size_t size) const { return {bytes_.data(), is_bf16_, num_inner, num_inner * size, size}; }

private:
    static uint32_t special(Generator& generator) {
        static constexpr uint32_t kSpecials[] = {
            0x7fc00000u, 0xffc00001u, 0x7f800000u, 0xff800000u, 0x00000001u, 0x80000001u, 0x00400000u, 0x807f0000u,
            0x00800000u, 0x7f7fffffu, 0xff7fffffu, 0x00000000u, 0x80000000u, 0x3f808000u, 0x3f818000u, 0x7fa00000u,
        };
        return kSpecials[generator.below(sizeof kSpecials / sizeof *kSpecials)];
    }

    size_t count_;
    bool is_bf16_;
    std::vector<unsigned char> bytes_;
};

// Of bits, in order. All that are not numbers count as one: which of them an operation gives differs between processors.
class Checksum {
public:
    void add(uint32_t word) {
        for (int byte = 0; byte < 4; ++byte) sum_ = (sum_ ^ ((word >> (8 * byte)) & 255u)) * 0x100000001b3ull;
    }
    void add(const Values& values) {
        for (size_t i = 0; i < values.count(); ++i) {
            const uint32_t bits = values.bits(i);
            add((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits);
        }
    }
    uint64_t sum() const { return sum_; }

private:
    uint64_t sum_ = 0xcbf29ce484222325ull;
};

}  // namespace qanat
