// The Python module. Tensors come as addresses and sizes: no header of torch is needed, and nothing is converted on the
// way. Shapes, types and strides are checked by the Python side (qanat.kernels.native), which alone calls this.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <numeric>
#include <stdexcept>

#include "limits/limits.hpp"
#include "ops/ops.hpp"
#include "runtime/arena.hpp"
#include "runtime/step_inputs.hpp"
#include "runtime/tape.hpp"

namespace nb = nanobind;
using namespace qanat;

namespace {

using Address = uintptr_t;

template <class T = void>
T* at(Address address) {
    return reinterpret_cast<T*>(address);
}

// (address, is bf16, inner rows, outer stride, inner stride): see `Rows`.
using RowsTuple = nb::typed<nb::tuple, Address, bool, size_t, size_t, size_t>;

Rows rows_of(const RowsTuple& t) {
    return {at(nb::cast<Address>(t[0])), nb::cast<bool>(t[1]), nb::cast<size_t>(t[2]), nb::cast<size_t>(t[3]),
            nb::cast<size_t>(t[4])};
}

// (is int4, inputs, inputs of a segment, inputs of a cell, is static, its scale, its offset): what of a quantised matrix
// decides about the rows that it reads.
using FormatTuple = nb::typed<nb::tuple, bool, size_t, size_t, size_t, bool, float, float>;

PackedView format_of(const FormatTuple& t) {
    PackedView format{};
    format.kind = nb::cast<bool>(t[0]) ? Kind::kInt4 : Kind::kInt8;
    format.num_inputs = nb::cast<size_t>(t[1]);
    format.segment_length = nb::cast<size_t>(t[2]);
    format.cell = nb::cast<size_t>(t[3]);
    format.is_static = nb::cast<bool>(t[4]);
    format.static_scale = nb::cast<float>(t[5]);
    format.static_offset = nb::cast<float>(t[6]);
    return format;
}

std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const InstructionSet& set : instruction_sets()) found.emplace_back(set.name);
    return found;
}

using Kinds = std::array<const char*, 4>;
constexpr Kinds kKinds = {"fp32", "bf16", "int8", "int4"};

PackedView shape_of(const std::string& kind, size_t num_outputs, size_t num_inputs, size_t segment_length,
                    size_t group_size, bool is_scale_bf16, bool has_bias, bool is_static, float static_scale,
                    float static_offset) {
    const size_t cell = std::gcd(segment_length, group_size);
    if (kind == "int4" && (cell == 0 || cell % 8)) throw std::invalid_argument("cells of int4 matrices are multiples of 8");
    for (size_t i = 0; i < kKinds.size(); ++i)
        if (kind == kKinds[i])
            return {nullptr, static_cast<Kind>(i), num_outputs, num_inputs, segment_length, group_size, cell, is_scale_bf16,
                    has_bias, is_static, static_scale, static_offset};
    throw std::invalid_argument("there is no kind of matrix " + kind);
}

// Runs an op without the interpreter's lock, and keeps it on the tape that is recorded, if one is. It captures its
// arguments by value: addresses, sizes, and pointers to matrices that live as long as the model.
template <class Op>
void submit(Op op) {
    nb::gil_scoped_release free;
    Tape::submit(std::move(op));
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

void bind_packed(nb::module_& m) {
    using namespace nb::literals;
    m.def("packed_bytes", [](const std::string& kind, size_t num_matrices, size_t num_outputs, size_t num_inputs,
                             size_t segment_length, size_t group_size, bool is_scale_bf16, bool has_bias,
                             bool is_static, float static_scale, float static_offset) {
        return num_matrices * shape_of(kind, num_outputs, num_inputs, segment_length, group_size, is_scale_bf16, has_bias,
                                       is_static, static_scale, static_offset).size_bytes();
    }, "kind"_a, "num_matrices"_a, "num_outputs"_a, "num_inputs"_a, "segment_length"_a, "group_size"_a,
       "is_scale_bf16"_a, "has_bias"_a, "is_static"_a, "static_scale"_a, "static_offset"_a,
       "What a `PackedMatrix` of this header takes.");
    nb::class_<PackedMatrix>(m, "PackedMatrix")
        .def("__init__", [](PackedMatrix* self, const std::string& kind, size_t num_matrices, size_t num_outputs,
                            size_t num_inputs, size_t segment_length, size_t group_size, bool is_scale_bf16, bool has_bias,
                            bool is_static, float static_scale, float static_offset, Address address) {
            new (self) PackedMatrix(shape_of(kind, num_outputs, num_inputs, segment_length, group_size, is_scale_bf16,
                                             has_bias, is_static, static_scale, static_offset), num_matrices, at(address));
        }, "kind"_a, "num_matrices"_a, "num_outputs"_a, "num_inputs"_a, "segment_length"_a, "group_size"_a,
           "is_scale_bf16"_a, "has_bias"_a, "is_static"_a, "static_scale"_a, "static_offset"_a, "address"_a = 0)
        .def("fill_plain", [](PackedMatrix& self, Address source, size_t stride, size_t matrix_stride) {
            nb::gil_scoped_release free;
            self.fill_plain(at(source), stride, matrix_stride);
        })
        .def("fill_quantised", [](PackedMatrix& self, Address values, Address scales, Address bias) {
            nb::gil_scoped_release free;
            self.fill_quantised(at<const int8_t>(values), at<const float>(scales), at<const float>(bias));
        })
        .def("move_to", [](PackedMatrix& self, Address address) {
            std::unique_ptr<Region> given_up;
            nb::gil_scoped_release free;
            given_up = self.move_to(at(address));
        })
        .def_prop_ro("address", [](const PackedMatrix& p) { return reinterpret_cast<Address>(p.view().data); })
        .def_prop_ro("size_bytes", &PackedMatrix::size_bytes);
}

// A region is read and written through Python's buffer protocol: tensors are made of it and keep it alive.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    Region* region = nb::inst_ptr<Region>(nb::handle(self));
    return PyBuffer_FillInfo(view, self, region->data, static_cast<Py_ssize_t>(region->size_bytes), 0, flags);
}

PyType_Slot region_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

void bind_arena(nb::module_& m) {
    nb::class_<Region>(m, "Region", nb::type_slots(region_slots));
    nb::class_<Arena>(m, "Arena")
        .def(nb::init<size_t>())
        .def("overlay", [](const Arena& arena) { return std::make_shared<Arena>(arena); },
             "The same memory, as if nothing of it were given out.")
        .def("take", [](const std::shared_ptr<Arena>& arena, size_t size_bytes) -> std::unique_ptr<Region> {
            void* data = arena->take(size_bytes);
            return data ? std::make_unique<Region>(arena, data, size_bytes) : nullptr;
        }, "A region, or None where there is no room for it.")
        .def("holds", [](const Arena& arena, Address address) { return arena.holds(at(address)); },
             "Whether an address lies in its memory.")
        .def_prop_ro("size_bytes", &Arena::size_bytes)
        .def_prop_ro("used_bytes", &Arena::used_bytes)
        .def_prop_ro("peak_bytes", &Arena::peak_bytes)
        .def_prop_ro("num_taken", &Arena::num_taken)
        .def_prop_ro("num_missed", &Arena::num_missed)
        .def_prop_ro("num_holes", &Arena::num_holes);
}

void bind_tape(nb::module_& m) {
    nb::class_<Tape>(m, "Tape")
        .def(nb::init<>())
        .def("begin", &Tape::begin, "From here to `end`, ops of this thread are kept as well as run.")
        .def("end", &Tape::end)
        .def("replay", [](const Tape& tape) {
            nb::gil_scoped_release free;
            tape.replay();
        }, "Runs all of them again.")
        .def_prop_ro("num_ops", &Tape::num_ops);
    m.def("set_timed", &Tape::set_timed, "Whether ops are timed; starts at zero.");
    m.def("busy_ns", &Tape::busy_ns, "Nanoseconds inside ops since then.");
}

// (addresses of tokens, blocks and draw, first position, end, number of blocks, state's id): see `StepRequest`.
using RequestTuple = nb::typed<nb::tuple, Address, Address, Address, size_t, size_t, size_t, int32_t>;

void bind_step_inputs(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<StepInputs>(m, "StepInputs")
        .def("__init__", [](StepInputs* self, const std::vector<Address>& arrays, size_t max_tokens, size_t table_width,
                            size_t block_size) {
            if (arrays.size() != 10) throw std::invalid_argument("a step has ten arrays");
            const StepArrays to{at<int64_t>(arrays[0]), at<int64_t>(arrays[1]), at<int64_t>(arrays[2]),
                                at<int32_t>(arrays[3]), at<int32_t>(arrays[4]), at<int32_t>(arrays[5]),
                                at<int32_t>(arrays[6]), at<int32_t>(arrays[7]), at<int32_t>(arrays[8]),
                                at<Draw>(arrays[9])};
            new (self) StepInputs(to, max_tokens, table_width, block_size);
        }, "arrays"_a, "max_tokens"_a, "table_width"_a, "block_size"_a)
        .def("fill", [](StepInputs& self, const nb::typed<nb::list, RequestTuple>& requests) {
            std::vector<StepRequest> own;
            own.reserve(requests.size());
            for (const nb::handle one : requests) {
                const nb::tuple t = nb::borrow<nb::tuple>(one);
                own.push_back({at<const int32_t>(nb::cast<Address>(t[0])), at<const int32_t>(nb::cast<Address>(t[1])),
                               at<const Draw>(nb::cast<Address>(t[2])), nb::cast<size_t>(t[3]), nb::cast<size_t>(t[4]),
                               nb::cast<size_t>(t[5]), nb::cast<int32_t>(t[6])});
            }
            self.fill(own);
        }, "Writes a step's inputs.");
}

// See `LinearTarget`.
using TargetTuple = std::tuple<const PackedMatrix*, Address, Address, bool>;

void bind_products(nb::module_& m) {
    using namespace nb::literals;
    m.def("linear", [](const RowsTuple& x, size_t num_rows, const std::vector<TargetTuple>& targets) {
        const Rows rows = rows_of(x);
        std::vector<LinearTarget> own;
        for (const auto& [matrix, shared, out, is_out_bf16] : targets)
            own.push_back({matrix, at(shared), at(out), is_out_bf16});
        submit([rows, num_rows, own = std::move(own)] { run_linear(rows, num_rows, own); });
    });
    m.def("embedding", [](Address token_ids, size_t num_rows, const PackedMatrix* matrix, Address out,
                          bool is_out_bf16) {
        submit([=] { run_embedding(at<const int64_t>(token_ids), num_rows, *matrix, at(out), is_out_bf16); });
    });
    m.def("gather", [](Address ids, size_t num_rows, Address table, size_t table_rows, size_t row_bytes, Address out) {
        submit([=] { run_gather(at<const int64_t>(ids), num_rows, at(table), table_rows, row_bytes, at(out)); });
    });
    m.def("experts", [](const RowsTuple& x, Address ready_rows, size_t num_rows, Address ids, size_t top_k,
                        const PackedMatrix* gate_up, const PackedMatrix* down, Address out, bool is_out_bf16) {
        const Rows rows = rows_of(x);
        const ExpertArguments a{gate_up, down, at(ready_rows), at<const int64_t>(ids), top_k, nullptr, {}, {}, nullptr,
                                nullptr, at(out), is_out_bf16};
        submit([=] { run_experts(rows, num_rows, a); });
    });
    m.def("mixture", [](const RowsTuple& x, Address ready_rows, size_t num_rows, Address ids, size_t top_k,
                        const PackedMatrix* gate_up, const PackedMatrix* down, Address weights, const RowsTuple& shared_gate,
                        const RowsTuple& shared_up, const PackedMatrix* shared_down, Address shared_scale, Address out,
                        bool is_out_bf16) {
        const Rows rows = rows_of(x);
        const ExpertArguments a{gate_up, down, at(ready_rows), at<const int64_t>(ids), top_k, at<const float>(weights),
                                rows_of(shared_gate), rows_of(shared_up), shared_down, at(shared_scale), at(out), is_out_bf16};
        submit([=] { run_experts(rows, num_rows, a); });
    }, "x"_a, "ready_rows"_a, "num_rows"_a, "ids"_a, "top_k"_a, "gate_up"_a, "down"_a, "weights"_a, "shared_gate"_a,
       "shared_up"_a, "shared_down"_a.none(), "shared_scale"_a, "out"_a, "is_out_bf16"_a);
}

void bind_shared_rows(nb::module_& m) {
    m.def("quantised_bytes", [](const FormatTuple& format, size_t num_rows) {
        return quantised_bytes(format_of(format), num_rows);
    }, "Of so many rows as int8, with their scales and sums.");
    m.def("quantise", [](const RowsTuple& x, size_t num_rows, const FormatTuple& format, Address memory) {
        const Rows rows = rows_of(x);
        const SharedRows shared{format_of(format), at(memory)};
        submit([=] { run_quantise(rows, num_rows, shared); });
    });
    m.def("quantised_norm", [](bool is_gated, const RowsTuple& x, const RowsTuple& other, size_t num_rows, Address weight,
                               bool is_weight_bf16, bool is_zero_centred, Address out, Address total, bool is_out_bf16,
                               size_t size, float eps, const FormatTuple& format, Address memory) {
        const NormArguments a{rows_of(x), rows_of(other), at(weight), is_weight_bf16, is_zero_centred,
                              at(out), at(total), is_out_bf16, size, eps};
        const SharedRows shared{format_of(format), at(memory)};
        submit([=] { (is_gated ? run_quantised_gated_norm : run_quantised_norm)(a, num_rows, shared); });
    });
    m.def("quantised_swiglu", [](const RowsTuple& gate, const RowsTuple& up, size_t num_rows, Address out, bool is_bf16,
                                 size_t size, const FormatTuple& format, Address memory) {
        const SwigluArguments a{rows_of(gate), rows_of(up), at(out), is_bf16, size};
        const SharedRows shared{format_of(format), at(memory)};
        submit([=] { run_quantised_swiglu(a, num_rows, shared); });
    });
}

void bind_rowwise(nb::module_& m) {
    m.def("norm", [](int kind, const RowsTuple& x, const RowsTuple& other, size_t num_rows, Address weight,
                     bool is_weight_bf16, bool is_zero_centred, Address out, Address total, bool is_out_bf16, size_t size,
                     float eps) {
        const NormArguments a{rows_of(x), rows_of(other), at(weight), is_weight_bf16, is_zero_centred,
                              at(out), at(total), is_out_bf16, size, eps};
        submit([=] { run_norm(static_cast<Norm>(kind), a, num_rows); });
    });
    m.def("swiglu", [](const RowsTuple& gate, const RowsTuple& up, size_t num_rows, Address out, bool is_bf16, size_t size) {
        const SwigluArguments a{rows_of(gate), rows_of(up), at(out), is_bf16, size};
        submit([=] { run_swiglu(a, num_rows); });
    });
    m.def("rotary_rows", [](Address positions, size_t num_axes, size_t num_rows, Address frequencies, size_t half,
                            const std::vector<int>& sections, float scale, Address cosines, Address sines, bool is_bf16) {
        submit([=] {
            run_rotary_rows(at<const int64_t>(positions), num_axes, num_rows, at<const float>(frequencies), half,
                            sections, scale, at(cosines), at(sines), is_bf16);
        });
    });
    m.def("route", [](const RowsTuple& logits, size_t num_rows, Address weights, Address ids, size_t num_experts,
                      size_t top_k, bool is_renormalised) {
        const RouteArguments a{rows_of(logits), at<float>(weights), at<int64_t>(ids), nullptr, num_experts, top_k, is_renormalised};
        submit([=] { run_route(a, num_rows); });
    });
    m.def("combine", [](Address expert_out, bool is_bf16, Address weights, Address shared, Address gate, Address out,
                        size_t num_rows, size_t size, size_t top_k) {
        const CombineArguments a{at(expert_out), is_bf16, at<const float>(weights), at(shared), at(gate), at(out), size, top_k};
        submit([=] { run_combine(a, num_rows); });
    });
    m.def("choice", [](Address scores, size_t stride, size_t num_rows, size_t num_scores, size_t num_valid, Address draws,
                       Address chosen) {
        const ChoiceArguments a{at<const float>(scores), stride, num_scores, num_valid, at<const Draw>(draws),
                                nullptr, nullptr, nullptr, nullptr};
        submit([=] { run_choice(a, at<int64_t>(chosen), num_rows); });
    });
}

void bind_sequence(nb::module_& m) {
    m.def("heads", [](const RowsTuple& q, const RowsTuple& k, const RowsTuple& v, size_t num_rows, Address q_weight,
                      Address k_weight, bool is_weight_bf16, bool is_zero_centred, float eps, Address cosines, Address sines,
                      bool is_angle_bf16, size_t half, Address out, Address cache, int cache_kind, size_t values_start,
                      Address slots, size_t num_requests, Address query_lens, size_t num_heads, size_t num_kv_heads,
                      size_t head_dim) {
        const HeadArguments a{rows_of(q), rows_of(k), rows_of(v), at(q_weight), at(k_weight), is_weight_bf16,
                              is_zero_centred, eps, at(cosines), at(sines), is_angle_bf16, half, at(out), at(cache),
                              static_cast<Kind>(cache_kind), values_start, at<const int64_t>(slots), num_heads,
                              num_kv_heads, head_dim};
        const Requests requests{num_requests, at<const int32_t>(query_lens), nullptr, nullptr, nullptr};
        submit([=] { run_heads(a, requests, num_rows); });
    });
    m.def("attention", [](const RowsTuple& q, const RowsTuple& gate, size_t num_rows, Address cache, int cache_kind,
                          size_t values_start, Address tables, size_t table_stride, size_t num_requests, Address query_lens,
                          Address seq_lens, Address out, bool is_out_bf16, size_t block_size, size_t num_heads,
                          size_t num_kv_heads, size_t head_dim, float scale) {
        const AttentionArguments attention{rows_of(q), rows_of(gate), at(cache), static_cast<Kind>(cache_kind), values_start,
                                           at<const int32_t>(tables), table_stride, nullptr, nullptr, at(out), is_out_bf16,
                                           block_size, num_heads, num_kv_heads, head_dim, scale};
        const Requests requests{num_requests, at<const int32_t>(query_lens), at<const int32_t>(seq_lens), nullptr, nullptr};
        submit([=] { run_attention(attention, requests, num_rows); });
    });
    m.def("delta_net", [](const RowsTuple& x, const RowsTuple& a, const RowsTuple& b, size_t num_rows, Address weight,
                          bool is_weight_bf16, Address a_log, Address dt_bias, bool is_bias_bf16, Address conv_states,
                          bool is_state_bf16, Address states, Address state_ids, Address num_computed, size_t num_requests,
                          Address query_lens, Address held_inputs, Address held_gates, size_t max_held, Address accepted,
                          Address are_held, Address out, bool is_out_bf16, size_t num_taps, size_t key_heads,
                          size_t value_heads, size_t key_dim, size_t value_dim) {
        const DeltaNetArguments d{rows_of(x), rows_of(a), rows_of(b), at(weight), is_weight_bf16, at<const float>(a_log),
                                  at(dt_bias), is_bias_bf16, at(conv_states), at(held_inputs), is_state_bf16,
                                  at<float>(held_gates), at<float>(states), at(out), is_out_bf16, max_held, num_taps,
                                  key_heads, value_heads, key_dim, value_dim, nullptr, nullptr, nullptr, nullptr, nullptr,
                                  nullptr, nullptr};
        const Requests requests{num_requests, at<const int32_t>(query_lens), nullptr, at<const int32_t>(num_computed),
                                at<const int32_t>(state_ids)};
        const HeldRows held{at<const int32_t>(accepted), at<const int32_t>(are_held)};
        submit([=] { run_delta_net(d, requests, held, num_rows); });
    });
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

}  // namespace

NB_MODULE(_module, m) {
    m.doc() = "Qanat's kernels for CPUs.";
    // Tensors that live to the end of the process keep their regions: torch takes them apart after this module.
    nb::set_leak_warnings(false);
    bind_runtime(m);
    bind_arena(m);
    bind_tape(m);
    bind_step_inputs(m);
    bind_packed(m);
    bind_products(m);
    bind_shared_rows(m);
    bind_rowwise(m);
    bind_sequence(m);
    bind_limits(m);
}
