// Cases of the kernels that read what earlier rows of a request have left.
#include "parity.hpp"

namespace qanat {

namespace {

std::string name_of(const char* kernel, Variant variant, const char* more) {
    return std::string(kernel) + "," + variant.name() + "," + more;
}

// Two requests of 70 and 3 rows in a cache of blocks of 16, heads in groups of one and of five, 23 of 48 dimensions turned.
void run_cached(const InstructionSet& set, Variant variant, bool is_cache_int8, size_t group) {
    constexpr size_t kBlock = 16, kRows = 73, kBlocks = 7, kKvHeads = 2, kDim = 48, kHalf = 23;
    const std::string shape = std::string(group == 1 ? "alone" : "groups") + (is_cache_int8 ? "_int8" : "");
    const std::string name = name_of("attention", variant, shape.c_str());
    Generator generator(name);
    const Kind kind = is_cache_int8 ? Kind::kInt8 : variant.is_bf16 ? Kind::kBf16 : Kind::kFp32;
    const size_t num_heads = group * kKvHeads, head_size = is_cache_int8 ? kDim + sizeof(float) : kDim;
    const size_t half = kBlocks * kBlock * kKvHeads * head_size;
    Values q(generator, kRows * num_heads * kDim, variant.is_bf16, variant.has_specials);
    Values gate(generator, kRows * num_heads * kDim, variant.is_bf16, variant.has_specials);
    Values k(generator, kRows * kKvHeads * kDim, variant.is_bf16, variant.has_specials);
    Values v(generator, kRows * kKvHeads * kDim, variant.is_bf16, variant.has_specials);
    Values weight(generator, kDim, variant.is_bf16), angles(generator, kRows * kHalf, variant.is_bf16);
    Values queries(kRows * num_heads * kDim, variant.is_bf16), out(kRows * num_heads * kDim, variant.is_bf16);
    Values cache(is_cache_int8 ? half : 2 * half, is_cache_int8 || variant.is_bf16);
    const int32_t tables[] = {4, 2, 0, 6, 5, 1, 0, 0, 0, 0};
    std::vector<int64_t> slots;
    std::vector<int32_t> requests, positions;
    for (int32_t row = 0; row < static_cast<int32_t>(kRows); ++row) {
        const int32_t request = row < 70 ? 0 : 1, position = row < 70 ? row : row - 70;
        requests.push_back(request);
        positions.push_back(position);
        slots.push_back(tables[request * 5 + position / kBlock] * static_cast<int64_t>(kBlock) + position % kBlock);
    }
    set.kernels->heads({q.rows(num_heads, kDim), k.rows(kKvHeads, kDim), v.rows(kKvHeads, kDim), weight.data(), weight.data(),
                        variant.is_bf16, group == 1, 1e-6f, angles.data(), angles.data(), variant.is_bf16, kHalf,
                        queries.data(), cache.data(), kind, half, slots.data(), num_heads, kKvHeads, kDim},
                       0, kRows * (num_heads + kKvHeads));
    set.kernels->attention({queries.rows(num_heads, kDim), gate.rows(num_heads, kDim), cache.data(), kind, half,
                            tables, 5, requests.data(), positions.data(), out.data(), variant.is_bf16, kBlock,
                            num_heads, kKvHeads, kDim, 0.14433756f}, 0, kRows * kKvHeads);
    Report report(set, name);
    report.add(queries);
    report.add(cache);
    report.add(out);
}

void run_attention(const InstructionSet& set, Variant variant) {
    for (const bool is_cache_int8 : {false, true})
        for (const size_t group : {1u, 5u}) run_cached(set, variant, is_cache_int8, group);
}

// A prompt, a decoding request, one that absorbs two of its held rows and holds three others, and one that absorbs three
// and has no rows.
constexpr Span kSpans[] = {{0, 0, 5, 0, 0, 2, true, false, 0, 2}, {5, 5, 1, 0, 0, 0, false, false, 2, 0},
                           {6, 6, 3, 1, 2, 1, false, true, 2, 0}, {11, 9, 0, 0, 3, 3, false, false, 2, 0}};
constexpr StateStore kStores[] = {{2, 4}, {5, 5}};
constexpr int32_t kLineSpans[] = {0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 3, 3, 3};
constexpr size_t kNumSpans = 4, kSpanRows = 9, kNumLines = 14, kNumStates = 6, kMaxHeld = 3;

void run_delta_net(const InstructionSet& set, Variant variant) {
    for (const size_t num_taps : {2u, 4u}) {
        constexpr size_t kKeyHeads = 2, kValueHeads = 4, kKeyDim = 32, kValueDim = 48, kGates = kNumLines * kValueHeads;
        constexpr size_t kChannels = 2 * kKeyHeads * kKeyDim + kValueHeads * kValueDim;
        const std::string name = name_of("delta_net", variant, num_taps == 2 ? "2_taps" : "4_taps");
        Generator generator(name);
        Values x(generator, kSpanRows * kChannels, variant.is_bf16, variant.has_specials);
        Values weight(generator, kChannels * num_taps, variant.is_bf16);
        Values a(generator, kSpanRows * kValueHeads, variant.is_bf16, variant.has_specials);
        Values b(generator, kSpanRows * kValueHeads, variant.is_bf16, variant.has_specials);
        Values a_log(generator, kValueHeads, false), bias(generator, kValueHeads, variant.is_bf16);
        Values conv_states(generator, kNumStates * (num_taps - 1) * kChannels, variant.is_bf16, variant.has_specials);
        Values held_inputs(generator, kNumStates * kMaxHeld * kChannels, variant.is_bf16, variant.has_specials);
        Values held_gates(generator, kNumStates * kMaxHeld * 2 * kValueHeads, false);
        Values states(generator, kNumStates * kValueHeads * kKeyDim * kValueDim, false, variant.has_specials);
        Values q(kNumLines * kKeyHeads * kKeyDim, false), k(kNumLines * kKeyHeads * kKeyDim, false), v(kGates * kValueDim, false);
        Values decay(kGates, false), strength(kGates, false), out(kSpanRows * kValueHeads * kValueDim, variant.is_bf16);
        const DeltaNetArguments arguments{
            x.rows(1, kChannels), a.rows(1, kValueHeads), b.rows(1, kValueHeads), weight.data(), variant.is_bf16,
            a_log.as<float>(), bias.data(), variant.is_bf16, conv_states.data(), held_inputs.data(), variant.is_bf16,
            held_gates.as<float>(), states.as<float>(), out.data(), variant.is_bf16, kMaxHeld, num_taps, kKeyHeads,
            kValueHeads, kKeyDim, kValueDim, kSpans, kLineSpans, kStores, q.as<float>(), k.as<float>(), v.as<float>(),
            decay.as<float>(), strength.as<float>()};
        set.kernels->delta_inputs(arguments, 0, kNumLines * kKeyHeads);
        set.kernels->delta_rule(arguments, 0, kNumSpans * kValueHeads * (kValueDim / 16));
        set.kernels->delta_kept(arguments, 0, kNumSpans);
        Report report(set, name);
        for (const Values* values : {&q, &k, &v, &decay, &strength, &conv_states, &held_inputs, &held_gates, &states, &out})
            report.add(*values);
    }
}

}  // namespace

void sequence_cases(std::vector<Case>& cases) {
    for (const auto run : {run_attention, run_delta_net}) cases.push_back({run});
}

}  // namespace qanat
