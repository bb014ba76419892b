// Cases of the kernels whose rows stand each for themselves.
#include "parity.hpp"

namespace qanat {

namespace {

constexpr size_t kSizes[] = {1, 20, 64, 301};
constexpr size_t kNumRows = 5;

std::string case_name(const char* kernel, Variant variant, size_t size) {
    return std::string(kernel) + "," + variant.name() + "," + std::to_string(size);
}

// The functions, over bits of all kinds of numbers.
void run_functions(const InstructionSet& set, Variant variant) {
    if (variant.is_bf16) return;
    Generator generator("functions" + variant.name());
    Values x(generator, 70001, false, true);
    if (variant.has_specials)
        for (size_t i = 0; i < 65536; ++i) x.set(i, static_cast<uint32_t>(i * 65537));
    for (int which = 0; which < 7; ++which) {
        Values out(x.count(), false);
        set.kernels->functions(which, x.as<float>(), out.as<float>(), x.count());
        Report(set, case_name("functions", variant, static_cast<size_t>(which))).add(out);
    }
}

void run_norms(const InstructionSet& set, Variant variant) {
    using Kernel = void (*)(const NormArguments&, size_t, size_t);
    const std::pair<const char*, Kernel> kernels[] = {{"rms_norm", set.kernels->rms_norm},
                                                      {"add_rms_norm", set.kernels->add_rms_norm},
                                                      {"gated_rms_norm", set.kernels->gated_rms_norm}};
    for (const size_t size : kSizes)
        for (const auto& [name, kernel] : kernels)
            for (const bool is_zero_centred : {false, true}) {
                const std::string full = case_name(name, variant, size) + (is_zero_centred ? ",centred" : "");
                Generator generator(full);
                Values x(generator, kNumRows * size, variant.is_bf16, variant.has_specials);
                Values other(generator, kNumRows * size, variant.is_bf16, variant.has_specials);
                Values weight(generator, size, !variant.is_bf16, variant.has_specials);
                Values out(kNumRows * size, variant.is_bf16), total(kNumRows * size, variant.is_bf16);
                kernel({x.rows(1, size), other.rows(1, size), weight.data(), weight.is_bf16(), is_zero_centred,
                        out.data(), total.data(), variant.is_bf16, size, 1e-6f}, 0, kNumRows);
                Report report(set, full);
                report.add(out);
                report.add(total);
            }
}

void run_swiglu(const InstructionSet& set, Variant variant) {
    for (const size_t size : kSizes) {
        const std::string name = case_name("swiglu", variant, size);
        Generator generator(name);
        Values both(generator, kNumRows * 2 * size, variant.is_bf16, variant.has_specials);
        Values out(kNumRows * size, variant.is_bf16);
        const Rows gate = both.rows(2, size);
        const Rows up{static_cast<const char*>(gate.data) + size * (variant.is_bf16 ? 2 : 4), variant.is_bf16, 1, 2 * size, 0};
        set.kernels->swiglu({{gate.data, variant.is_bf16, 1, 2 * size, 0}, up, out.data(), variant.is_bf16, size}, 0, kNumRows);
        Report(set, name).add(out);
    }
}

void run_route(const InstructionSet& set, Variant variant) {
    for (const size_t num_experts : {8u, 60u, 129u})
        for (const bool is_renormalised : {false, true}) {
            const size_t top_k = num_experts / 8;
            const std::string name = case_name("route", variant, num_experts) + (is_renormalised ? ",renormalised" : "");
            Generator generator(name);
            Values logits(generator, kNumRows * num_experts, variant.is_bf16, variant.has_specials);
            Values weights(kNumRows * top_k, false), scratch(kNumRows * num_experts, false);
            std::vector<int64_t> ids(kNumRows * top_k);
            set.kernels->route({logits.rows(1, num_experts), weights.as<float>(), ids.data(), scratch.as<float>(),
                                num_experts, top_k, is_renormalised}, 0, kNumRows);
            Report report(set, name);
            report.add(weights);
            for (const int64_t id : ids) report.add(static_cast<uint32_t>(id));
        }
}

void run_combine(const InstructionSet& set, Variant variant) {
    for (const size_t size : kSizes)
        for (const bool has_shared : {false, true}) {
            const size_t top_k = 3;
            const std::string name = case_name("combine", variant, size) + (has_shared ? ",shared" : "");
            Generator generator(name);
            Values experts(generator, kNumRows * top_k * size, variant.is_bf16, variant.has_specials);
            Values weights(generator, kNumRows * top_k, false), gate(generator, kNumRows, variant.is_bf16);
            Values shared(generator, kNumRows * size, variant.is_bf16, variant.has_specials);
            Values out(kNumRows * size, variant.is_bf16);
            set.kernels->combine({experts.data(), variant.is_bf16, weights.as<float>(), has_shared ? shared.data() : nullptr,
                                  has_shared ? gate.data() : nullptr, out.data(), size, top_k}, 0, kNumRows);
            Report(set, name).add(out);
        }
}

void run_rounding(const InstructionSet& set, Variant variant) {
    if (variant.has_specials) return;
    for (const size_t group_size : {20u, 32u, 100u})
        for (const bool is_int4 : {false, true}) {
            const std::string name = case_name("rounding", variant, group_size) + (is_int4 ? ",int4" : "");
            Generator generator(name);
            const size_t num_inputs = 3 * group_size;
            Values x(generator, kNumRows * num_inputs, variant.is_bf16), importance(generator, num_inputs, false);
            Values scales(kNumRows * 3, false), room(3 * (group_size + 16), false);
            std::vector<int8_t> numbers(kNumRows * num_inputs);
            set.kernels->round_groups({x.data(), variant.is_bf16, is_int4, num_inputs, group_size, importance.as<float>(),
                                       numbers.data(), scales.as<float>()}, room.as<float>(), 0, kNumRows * 3);
            Report report(set, name);
            report.add(scales);
            for (const int8_t number : numbers) report.add(static_cast<uint32_t>(number));
        }
}

void run_choice(const InstructionSet& set, Variant variant) {
    if (variant.is_bf16) return;
    const Draw draws[kNumRows] = {{}, {0x45e588f522a5f289u, 1.0, 0.7f, -__builtin_inff(), 0, 0}, {3, 0.9, 1.3f, -4.0f, 0, 0}};
    for (const size_t num_scores : {1u, 37u, 3001u, 9000u}) {
        const std::string name = case_name("choice", variant, num_scores);
        Generator generator(name);
        Values scores(generator, kNumRows * num_scores, false, variant.has_specials);
        ChoiceArguments a{scores.as<float>(), num_scores, num_scores, num_scores - num_scores / 9, draws,
                          nullptr, nullptr, nullptr, nullptr};
        Values peaks(kNumRows * a.num_blocks(), false), poisons(kNumRows * a.num_blocks(), false);
        Values groups(kNumRows * a.num_groups(), false);
        std::vector<int32_t> ids(kNumRows * a.num_blocks());
        a.peaks = peaks.as<float>();
        a.poisons = poisons.as<float>();
        a.group_peaks = groups.as<float>();
        a.ids = ids.data();
        set.kernels->choice(a, 0, kNumRows * a.num_blocks());
        Report report(set, name);
        report.add(peaks);
        report.add(poisons);
        report.add(groups);
        for (const int32_t id : ids) report.add(static_cast<uint32_t>(id));
    }
}

// Candidates as they come out of the sort: the values fall in steps, so that some of them are equal.
void run_filter(const InstructionSet& set, Variant variant) {
    if (variant.is_bf16 || variant.has_specials) return;
    for (const int32_t top_k : {0, 40}) {
        const std::string name = case_name("filter", variant, static_cast<size_t>(top_k));
        Report report(set, name);
        std::vector<Candidate> sorted;
        std::vector<float> scores;
        for (int32_t id = 0; id < 500; ++id) {
            scores.push_back(4.0f - 0.125f * static_cast<float>(id / 3));
            sorted.push_back({scores.back() / 0.7f, id});
        }
        for (uint64_t key = 0; key < 50; ++key) {
            const Draw draw{key * 0x9e3779b97f4a7c15u, 0.95, 0.7f, -9.0f, top_k, 0};
            const FilterArguments a{scores.data(), scores.size(), draw, sorted[0].value};
            const double mass = set.kernels->mass(a);
            uint64_t bits;
            static_assert(sizeof bits == sizeof mass, "a double has 64 bits");
            __builtin_memcpy(&bits, &mass, sizeof bits);
            report.add(static_cast<uint32_t>(bits));
            report.add(static_cast<uint32_t>(set.kernels->pick(a, sorted.data(), sorted.size(), mass)));
        }
    }
}

}  // namespace

void rowwise_cases(std::vector<Case>& cases) {
    for (const auto run : {run_functions, run_norms, run_swiglu, run_route, run_combine, run_rounding, run_choice, run_filter})
        cases.push_back({run});
}

}  // namespace qanat
