// Cases of the kernels that read what earlier rows of a request have left.
#include "parity.hpp"

namespace qanat {

namespace {

std::string name_of(const char* kernel, Variant variant, const char* more) {
    return std::string(kernel) + "," + variant.name() + "," + more;
}

// Two requests of 70 and 3 rows in a cache of blocks of 16, heads in groups of one and of five.
void run_cached(const InstructionSet& set, Variant variant, bool is_cache_int8) {
    constexpr size_t kBlock = 16, kRows = 73, kBlocks = 7, kKvHeads = 2, kDim = 48;
    for (const size_t group : {1u, 5u}) {
        const std::string shape = group == 1 ? "alone" : "groups";
        const std::string name = name_of("attention", variant, (shape + (is_cache_int8 ? "_int8" : "")).c_str());
        Generator generator(name);
        const Kind kind = is_cache_int8 ? Kind::kInt8 : variant.is_bf16 ? Kind::kBf16 : Kind::kFp32;
        const size_t num_heads = group * kKvHeads, head_size = is_cache_int8 ? kDim + sizeof(float) : kDim;
        const size_t half = kBlocks * kBlock * kKvHeads * head_size;
        Values q(generator, kRows * num_heads * kDim, variant.is_bf16, variant.has_specials);
        Values gate(generator, kRows * num_heads * kDim, variant.is_bf16, variant.has_specials);
        Values k(generator, kRows * kKvHeads * kDim, variant.is_bf16, variant.has_specials);
        Values v(generator, kRows * kKvHeads * kDim, variant.is_bf16, variant.has_specials);
        Values cache(is_cache_int8 ? half : 2 * half, is_cache_int8 || variant.is_bf16), out(kRows * num_heads * kDim, variant.is_bf16);
        const int32_t tables[] = {4, 2, 0, 6, 5, 1, 0, 0, 0, 0};
        std::vector<int64_t> slots;
        std::vector<int32_t> requests, positions;
        for (int32_t row = 0; row < static_cast<int32_t>(kRows); ++row) {
            const int32_t request = row < 70 ? 0 : 1, position = row < 70 ? row : row - 70;
            requests.push_back(request);
            positions.push_back(position);
            slots.push_back(tables[request * 5 + position / kBlock] * static_cast<int64_t>(kBlock) + position % kBlock);
        }
        set.kernels->store({k.rows(kKvHeads, kDim), v.rows(kKvHeads, kDim), cache.data(), kind, half,
                            slots.data(), kKvHeads, kDim}, 0, kRows);
        set.kernels->attention({q.rows(num_heads, kDim), gate.rows(num_heads, kDim), cache.data(), kind, half,
                                tables, 5, requests.data(), positions.data(), out.data(), variant.is_bf16, kBlock,
                                num_heads, kKvHeads, kDim, 0.14433756f}, 0, kRows * kKvHeads);
        Report report(set, name);
        report.add(cache);
        report.add(out);
    }
}

void run_attention(const InstructionSet& set, Variant variant) {
    for (const bool is_cache_int8 : {false, true}) run_cached(set, variant, is_cache_int8);
}

constexpr Span kSpans[] = {{0, 5, 2, 1}, {5, 1, 0, 0}, {6, 3, 1, 0}};
constexpr size_t kNumSpans = 3, kSpanRows = 9, kNumStates = 3;

void run_conv(const InstructionSet& set, Variant variant) {
    for (const size_t num_taps : {2u, 4u}) {
        constexpr size_t kChannels = 83, kTasks = kNumSpans * 2;
        const std::string name = name_of("conv", variant, num_taps == 2 ? "2_taps" : "4_taps");
        Generator generator(name);
        Values x(generator, kSpanRows * kChannels, variant.is_bf16, variant.has_specials);
        Values weight(generator, kChannels * num_taps, variant.is_bf16);
        Values states(generator, kNumStates * (num_taps - 1) * kChannels, variant.is_bf16, variant.has_specials);
        Values out(kSpanRows * kChannels, variant.is_bf16);
        set.kernels->conv({x.rows(1, kChannels), weight.data(), variant.is_bf16, states.data(), variant.is_bf16, kSpans,
                           out.data(), variant.is_bf16, kChannels, num_taps}, 0, kTasks);
        Report report(set, name);
        report.add(states);
        report.add(out);
    }
}

void run_delta(const InstructionSet& set, Variant variant) {
    constexpr size_t kKeyHeads = 2, kValueHeads = 4, kKeyDim = 32, kValueDim = 48;
    const std::string name = name_of("delta", variant, "2_of_4_heads");
    Generator generator(name);
    Values q(generator, kSpanRows * kKeyHeads * kKeyDim, variant.is_bf16, variant.has_specials);
    Values k(generator, kSpanRows * kKeyHeads * kKeyDim, variant.is_bf16);
    Values v(generator, kSpanRows * kValueHeads * kValueDim, variant.is_bf16, variant.has_specials);
    Values decay(generator, kSpanRows * kValueHeads, false), strength(generator, kSpanRows * kValueHeads, false);
    Values states(generator, kNumStates * kValueHeads * kKeyDim * kValueDim, false, variant.has_specials);
    Values unit_q(kSpanRows * kKeyHeads * kKeyDim, false), unit_k(kSpanRows * kKeyHeads * kKeyDim, false);
    Values out(kSpanRows * kValueHeads * kValueDim, variant.is_bf16);
    set.kernels->unit({q.rows(kKeyHeads, kKeyDim), unit_q.as<float>(), kKeyDim, 0.17677669f}, 0, kSpanRows * kKeyHeads);
    set.kernels->unit({k.rows(kKeyHeads, kKeyDim), unit_k.as<float>(), kKeyDim, 1.0f}, 0, kSpanRows * kKeyHeads);
    set.kernels->delta({unit_q.as<float>(), unit_k.as<float>(), v.rows(kValueHeads, kValueDim), decay.as<float>(),
                        strength.as<float>(), states.as<float>(), kSpans, out.data(), variant.is_bf16, kKeyHeads,
                        kValueHeads, kKeyDim, kValueDim}, 0, kNumSpans * kValueHeads * (kValueDim / 16));
    Report report(set, name);
    report.add(unit_q);
    report.add(unit_k);
    report.add(states);
    report.add(out);
}

}  // namespace

void sequence_cases(std::vector<Case>& cases) {
    for (const auto run : {run_attention, run_conv, run_delta}) cases.push_back({run});
}

}  // namespace qanat
