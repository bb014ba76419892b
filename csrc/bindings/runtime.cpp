// The chosen instruction set, the threads, and what the machine can do at most.
#include "bindings.hpp"

#include <map>
#include <mutex>

#include "../limits/limits.hpp"

namespace qanat {

namespace {

std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const InstructionSet& set : instruction_sets()) found.emplace_back(set.name);
    return found;
}

// By op: (jobs, of them shared, caller's ns, of them waiting for others, busy ns of all threads).
nb::dict pool_waits() {
    std::map<std::string, Waits> found;
    {
        nb::gil_scoped_release free;
        std::lock_guard<std::mutex> turn(Runtime::get().turn());
        found = Runtime::get().pool().waits();
    }
    nb::dict by_op;
    for (const auto& [op, waits] : found)
        by_op[op.c_str()] = nb::make_tuple(waits.num_jobs, waits.num_shared, waits.elapsed_ns, waits.wait_ns, waits.busy_ns);
    return by_op;
}

}  // namespace

void bind_runtime(nb::module_& m) {
    m.def("instruction_sets", &names, "What this processor has, worst first.");
    m.def("instruction_set", [] { return std::string(Runtime::get().name()); }, "The chosen one.");
    m.def("num_threads", [] { return Runtime::get().pool().num_threads(); }, "Threads that compute.");
    m.def("num_unpinned", [] { return Runtime::get().pool().num_unpinned(); }, "Threads that could not be pinned.");
    m.def("count_pool_waits", [](bool is_counting) {
        nb::gil_scoped_release free;
        std::lock_guard<std::mutex> turn(Runtime::get().turn());
        Runtime::get().pool().set_counting(is_counting);
    }, "Whether jobs of the threads are timed; switching it on begins anew.");
    m.def("pool_waits", &pool_waits, "What was counted, by function of this module.");
    m.def("configure", [](const std::string& name, size_t num_threads, const std::vector<int>& cpus) {
        nb::gil_scoped_release free;
        Runtime::get().configure(name, num_threads, cpus);
    }, "Chooses the instruction set (the best where empty), the number of threads and their processors.");
    m.def("functions", [](int which, Address x, Address out, size_t count) {
        const FloatingPointScope scope;
        Runtime::get().kernels().functions(which, at<const float>(x), at<float>(out), count);
    }, "exp, sigmoid, silu or softplus (0 to 3) of fp32 values.");
}

void bind_limits(nb::module_& m) {
    m.def("rate_loops", [] {
        std::vector<std::pair<std::string, std::string>> found;
        for (const RateLoop& loop : rate_loops())
            found.emplace_back(loop.name, loop.operands == Operands::kInt8 ? "int8" : "float32");
        return found;
    }, "(instruction set, operands) of which a rate can be measured.");
    m.def("multiply_add_rate", [](const std::string& name, bool is_int8, double seconds) {
        nb::gil_scoped_release free;
        return multiply_add_rate(name, is_int8 ? Operands::kInt8 : Operands::kFloat, seconds);
    }, "Multiply-adds per second of all threads.");
    m.def("read_seconds", [](Address data, size_t size_bytes) {
        nb::gil_scoped_release free;
        return read_seconds(at<const void>(data), size_bytes);
    }, "Seconds to read aligned memory once with all threads.");
}

}  // namespace qanat
