// Ops that read and write the cache.
#include "bindings.hpp"

namespace qanat {

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
                          Address are_held, Address stores, size_t num_stores, Address out, bool is_out_bf16,
                          size_t num_taps, size_t key_heads,
                          size_t value_heads, size_t key_dim, size_t value_dim) {
        const DeltaNetArguments d{rows_of(x), rows_of(a), rows_of(b), at(weight), is_weight_bf16, at<const float>(a_log),
                                  at(dt_bias), is_bias_bf16, at(conv_states), at(held_inputs), is_state_bf16,
                                  at<float>(held_gates), at<float>(states), at(out), is_out_bf16, max_held, num_taps,
                                  key_heads, value_heads, key_dim, value_dim, nullptr, nullptr, nullptr, nullptr, nullptr,
                                  nullptr, nullptr, nullptr};
        const Requests requests{num_requests, at<const int32_t>(query_lens), nullptr, at<const int32_t>(num_computed),
                                at<const int32_t>(state_ids)};
        const HeldRows held{at<const int32_t>(accepted), at<const int32_t>(are_held)};
        const StateStores wanted{at<const int32_t>(stores), num_stores};
        submit([=] { run_delta_net(d, requests, held, wanted, num_rows); });
    });
}

}  // namespace qanat
