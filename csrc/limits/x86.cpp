// The loops of x86-64. Each is compiled for its own instruction set, whatever the rest of the module is built for.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "loops.hpp"

namespace qanat {

namespace {

void scalar_float(size_t num_rounds) {
    float sums[kChains] = {};
    const float factor = hidden(0.5f), term = hidden(1.0f);
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + term;
    keep(sums);
}

void scalar_int8(size_t num_rounds) {
    int32_t sums[kChains] = {};
    int8_t left = hidden(int8_t(-7)), right = hidden(int8_t(3));
    for (size_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] += int32_t(left) * int32_t(int8_t(right + i));
        asm volatile("" : "+r"(left), "+r"(right));
    }
    keep(sums);
}

__attribute__((target("avx2,fma"))) void avx2_float(size_t num_rounds) {
    __m256 sums[kChains];
    for (auto& sum : sums) sum = _mm256_setzero_ps();
    const __m256 factor = _mm256_set1_ps(hidden(0.5f)), term = _mm256_set1_ps(hidden(1.0f));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
    keep(sums);
}

// Without a dot-product instruction: pairs to 16 bits, pairs of pairs to 32 bits, added.
__attribute__((target("avx2"))) void avx2_int8(size_t num_rounds) {
    __m256i sums[kChains];
    for (auto& sum : sums) sum = _mm256_setzero_si256();
    const __m256i ones = _mm256_set1_epi16(hidden(int16_t(1))), right = _mm256_set1_epi8(hidden(int8_t(3)));
    __m256i left = _mm256_set1_epi8(hidden(int8_t(5)));
    for (size_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) {
            __m256i pairs = _mm256_maddubs_epi16(left, right);
            asm volatile("" : "+x"(pairs));
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
        }
        asm volatile("" : "+x"(left));
    }
    keep(sums);
}

#if defined(QANAT_HAS_AVX_VNNI)
__attribute__((target("avx2,avxvnni"))) void avx_vnni_int8(size_t num_rounds) {
    __m256i sums[kChains];
    for (auto& sum : sums) sum = _mm256_setzero_si256();
    const __m256i left = _mm256_set1_epi8(hidden(int8_t(5))), right = _mm256_set1_epi8(hidden(int8_t(3)));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], left, right);
    keep(sums);
}
#endif

__attribute__((target("avx512f"))) void avx512_float(size_t num_rounds) {
    __m512 sums[kChains];
    for (auto& sum : sums) sum = _mm512_setzero_ps();
    const __m512 factor = _mm512_set1_ps(hidden(0.5f)), term = _mm512_set1_ps(hidden(1.0f));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], factor, term);
    keep(sums);
}

__attribute__((target("avx512f,avx512bw"))) void avx512_int8(size_t num_rounds) {
    __m512i sums[kChains];
    for (auto& sum : sums) sum = _mm512_setzero_si512();
    const __m512i ones = _mm512_set1_epi16(hidden(int16_t(1))), right = _mm512_set1_epi8(hidden(int8_t(3)));
    __m512i left = _mm512_set1_epi8(hidden(int8_t(5)));
    for (size_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) {
            __m512i pairs = _mm512_maddubs_epi16(left, right);
            asm volatile("" : "+v"(pairs));
            sums[i] = _mm512_add_epi32(sums[i], _mm512_madd_epi16(pairs, ones));
        }
        asm volatile("" : "+v"(left));
    }
    keep(sums);
}

__attribute__((target("avx512f,avx512vnni"))) void vnni_int8(size_t num_rounds) {
    __m512i sums[kChains];
    for (auto& sum : sums) sum = _mm512_setzero_si512();
    const __m512i left = _mm512_set1_epi8(hidden(int8_t(5))), right = _mm512_set1_epi8(hidden(int8_t(3)));
    for (size_t round = 0; round < num_rounds; ++round)
#pragma GCC unroll 12
        for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], left, right);
    keep(sums);
}

// Two by two tiles of sums: each tile that is loaded serves two products, as in a real kernel.
constexpr double kTileProduct = 16.0 * 16 * 64;

__attribute__((target("amx-tile,amx-int8"))) void amx_int8(size_t num_rounds) {
    struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    alignas(64) static const int8_t operands[1024] = {1, 2, 3, 4};
    keep(shapes);  // the intrinsic tells the compiler of the first bytes only
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, operands, 64);
    _tile_loadd(5, operands, 64);
    _tile_loadd(6, operands, 64);
    _tile_loadd(7, operands, 64);
    for (size_t round = 0; round < num_rounds; ++round) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    _tile_release();
}

void plain_read(const void* data, size_t size_bytes) {
    const uint64_t* at = static_cast<const uint64_t*>(data);
    uint64_t sums[8] = {};
    for (size_t i = 0; i < size_bytes / sizeof *at; i += 8)
        for (size_t j = 0; j < 8; ++j) sums[j] ^= at[i + j];
    keep(sums);
}

// Hardware prefetchers stop at the ends of pages, so what comes is asked for ahead; further ahead is slower.
constexpr size_t kAhead = 1024;

__attribute__((target("avx2"))) void avx2_read(const void* data, size_t size_bytes) {
    const char* at = static_cast<const char*>(data);
    __m256i sums[8];
    for (auto& sum : sums) sum = _mm256_setzero_si256();
    for (size_t i = 0; i < size_bytes; i += 256)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; ++j) {
            if (j % 2 == 0) _mm_prefetch(at + i + j * 32 + kAhead, _MM_HINT_T0);
            sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(at + i + j * 32)));
        }
    keep(sums);
}

__attribute__((target("avx512f"))) void avx512_read(const void* data, size_t size_bytes) {
    const char* at = static_cast<const char*>(data);
    __m512i sums[8];
    for (auto& sum : sums) sum = _mm512_setzero_si512();
    for (size_t i = 0; i < size_bytes; i += 512)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; ++j) {
            _mm_prefetch(at + i + j * 64 + kAhead, _MM_HINT_T0);
            sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(at + i + j * 64));
        }
    keep(sums);
}

}  // namespace

const std::vector<RateLoop>& all_rate_loops() {
    static const std::vector<RateLoop> loops = {
        {"scalar", Operands::kFloat, kChains, scalar_float},
        {"scalar", Operands::kInt8, kChains, scalar_int8},
        {"avx2", Operands::kFloat, kChains * 8, avx2_float},
        {"avx2", Operands::kInt8, kChains * 32, avx2_int8},
#if defined(QANAT_HAS_AVX_VNNI)
        {"avx_vnni", Operands::kInt8, kChains * 32, avx_vnni_int8},
#endif
        {"avx512", Operands::kFloat, kChains * 16, avx512_float},
        {"avx512", Operands::kInt8, kChains * 64, avx512_int8},
        {"avx512_vnni", Operands::kInt8, kChains * 64, vnni_int8},
        {"amx", Operands::kInt8, 4 * kTileProduct, amx_int8},
    };
    return loops;
}

ReadLoop read_loop() { return has_set("avx512") ? avx512_read : has_set("avx2") ? avx2_read : plain_read; }

}  // namespace qanat

#endif
