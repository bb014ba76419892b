// What the machine can do at most: the rates that benchmarks print results beside. Measured with the runtime's threads,
// by loops that do nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace qanat {

// What a loop of multiply-adds computes with.
enum class Operands { kFloat, kInt8 };

// One loop of one instruction set: independent chains, as many as hide the latency of an addition.
struct RateLoop {
    const char* name;  // as QANAT_ISA calls it
    Operands operands;
    double per_round;               // multiply-adds
    void (*run)(size_t num_rounds);
};

// Those of this kind of processor, worst instruction set first.
const std::vector<RateLoop>& all_rate_loops();

// Those that this processor can run.
std::vector<RateLoop> rate_loops();

// True if the runtime could choose this instruction set here.
bool has_set(const std::string& name);

// The widest loads that the processor has: reads `size_bytes` (a multiple of 1024) from 64-byte aligned memory.
using ReadLoop = void (*)(const void* data, size_t size_bytes);
ReadLoop read_loop();

// Seconds that all threads together take to read the memory once, each its own part.
double read_seconds(const void* data, size_t size_bytes);

// Multiply-adds per second of all threads together over about `seconds`.
// Throws std::invalid_argument where this processor has no such loop.
double multiply_add_rate(const std::string& name, Operands operands, double seconds);

}  // namespace qanat
