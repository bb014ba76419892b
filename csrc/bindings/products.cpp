// Products with packed matrices, and the ops that make rows ready for them.
#include "bindings.hpp"

namespace qanat {

namespace {

// See `LinearTarget`.
using TargetTuple = std::tuple<const PackedMatrix*, Address, Address, bool>;

}  // namespace

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
    m.def("join", [](const nb::typed<nb::list, nb::typed<nb::tuple, Address, size_t, size_t>>& parts, size_t num_rows,
                     Address out) {
        std::vector<JoinedPart> own;
        for (const nb::handle one : parts) {
            const nb::tuple t = nb::borrow<nb::tuple>(one);
            own.push_back({at(nb::cast<Address>(t[0])), nb::cast<size_t>(t[1]), nb::cast<size_t>(t[2])});
        }
        submit([=, own = std::move(own)] { run_join(own, num_rows, at(out)); });
    });
    m.def("scatter", [](Address rows, Address places, size_t num_rows, size_t row_bytes, Address table, size_t table_rows) {
        submit([=] { run_scatter(at(rows), at<const int64_t>(places), num_rows, row_bytes, at(table), table_rows); });
    });
    m.def("known_tokens", [](Address choice, size_t num_rows, Address out) {
        submit([=] { run_known_tokens(at<const int64_t>(choice), num_rows, at<int64_t>(out)); });
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

}  // namespace qanat
