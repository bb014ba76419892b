// The Python module.
#include "bindings/bindings.hpp"

NB_MODULE(_module, m) {
    using namespace qanat;
    m.doc() = "Qanat's kernels for CPUs.";
    // Tensors that live to the end of the process keep their regions: torch takes them apart after this module.
    nb::set_leak_warnings(false);
    bind_runtime(m);
    bind_arena(m);
    bind_tape(m);
    bind_step_inputs(m);
    bind_draft_inputs(m);
    bind_packed(m);
    bind_products(m);
    bind_shared_rows(m);
    bind_rowwise(m);
    bind_sequence(m);
    bind_limits(m);
}
