// Ops whose rows stand each for themselves.
#include <cmath>
#include <cstring>

#include "ops.hpp"

namespace qanat {

namespace {

// Multiply-adds that an element with an exponential costs, roughly.
constexpr double kExponentialCost = 20;

template <class Arguments>
void share_rows(void (*kernel)(const Arguments&, size_t, size_t), const Arguments& arguments, size_t num_rows, double cost,
                const char* op = __builtin_FUNCTION()) {
    Runtime::get().pool().run(num_rows, cost, [&](size_t begin, size_t end) { kernel(arguments, begin, end); }, op);
}

}  // namespace

void run_norm(Norm kind, const NormArguments& arguments, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const KernelTable& kernels = runtime.kernels();
    const double cost = double(num_rows) * double(arguments.size);
    if (kind == Norm::kPlain) share_rows(kernels.rms_norm, arguments, num_rows, 3 * cost);
    if (kind == Norm::kAdded) share_rows(kernels.add_rms_norm, arguments, num_rows, 4 * cost);
    if (kind == Norm::kGated) share_rows(kernels.gated_rms_norm, arguments, num_rows, kExponentialCost * cost);
}

void run_swiglu(const SwigluArguments& arguments, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    share_rows(runtime.kernels().swiglu, arguments, num_rows, kExponentialCost * double(num_rows) * double(arguments.size));
}

void run_route(RouteArguments arguments, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    runtime.scratch().reset(Scratch::size_of<float>(num_rows * arguments.num_experts));
    arguments.scratch = runtime.scratch().take<float>(num_rows * arguments.num_experts);
    const double cost = double(num_rows) * double(arguments.num_experts) * (kExponentialCost + double(arguments.top_k));
    share_rows(runtime.kernels().route, arguments, num_rows, cost);
}

void run_combine(const CombineArguments& arguments, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    share_rows(runtime.kernels().combine, arguments, num_rows, double(num_rows) * double(arguments.size * (arguments.top_k + 1)));
}

namespace {

struct Turn {
    double cosine, sine;
};

// cos and sin of an angle below 2^20: made of double operations only, because a library's own differ between machines.
// The angle is brought to +-pi/4 by multiples of pi/2 in two parts, then both are summed as Taylor series to 1e-13.
Turn turn_of(double angle) {
    const double quarters = std::floor(angle * 0.63661977236758134308 + 0.5);
    const double r = (angle - quarters * 1.57079632673412561417) - quarters * 6.07710050650619224932e-11;
    const double s = r * r;
    double sine = 1.0 / 6227020800.0, cosine = 1.0 / 479001600.0;
    for (const double term : {-1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0})
        sine = sine * s + term;
    for (const double term : {-1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -1.0 / 2.0, 1.0})
        cosine = cosine * s + term;
    sine = sine * r;
    switch (static_cast<long long>(quarters) & 3) {
        case 0: return {cosine, sine};
        case 1: return {-sine, cosine};
        case 2: return {-cosine, -sine};
        default: return {sine, -cosine};
    }
}

void store_rounded(void* out, size_t at, bool is_bf16, float value) {
    if (!is_bf16) {
        static_cast<float*>(out)[at] = value;
        return;
    }
    uint32_t word;
    std::memcpy(&word, &value, 4);
    static_cast<uint16_t*>(out)[at] = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

}  // namespace

void run_rotary_rows(const int64_t* positions, size_t num_axes, size_t num_rows, const float* frequencies, size_t half,
                     const std::vector<int>& sections, float scale, void* cosines, void* sines, bool is_bf16) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    runtime.pool().run(num_rows, 60 * double(num_rows) * double(half), [&](size_t begin, size_t end) {
        for (size_t row = begin; row < end; ++row)
            for (size_t i = 0; i < half; ++i) {
                size_t axis = 0;
                for (size_t other = 1; other < num_axes && other < sections.size(); ++other)
                    if (i % 3 == other && i < 3 * static_cast<size_t>(sections[other])) axis = other;
                const float angle = static_cast<float>(positions[axis * num_rows + row]) * frequencies[i];
                const Turn found = turn_of(angle);
                store_rounded(cosines, row * half + i, is_bf16, static_cast<float>(found.cosine) * scale);
                store_rounded(sines, row * half + i, is_bf16, static_cast<float>(found.sine) * scale);
            }
    });
}

}  // namespace qanat
