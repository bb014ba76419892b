// Ops on single rows.
#include "bindings.hpp"

namespace qanat {

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

}  // namespace qanat
