// The kernels of one instruction set; compiled once for each, with QANAT_ISA naming it.
#include "attention.hpp"
#include "choice.hpp"
#include "delta.hpp"
#include "experts.hpp"
#include "filter.hpp"
#include "heads.hpp"
#include "linear.hpp"
#include "norm.hpp"
#include "pointwise.hpp"
#include "rounding.hpp"

#define QANAT_JOIN_(a, b) a##b
#define QANAT_JOIN(a, b) QANAT_JOIN_(a, b)

namespace qanat {

const KernelTable& QANAT_JOIN(QANAT_ISA, _kernels)() {
    using namespace QANAT_ISA;
    static constexpr KernelTable table = {
        pack,  linear,    widen,        rms_norm,   add_rms_norm, gated_rms_norm, swiglu, heads,
        attention, delta_inputs, delta_rule, delta_kept, route, combine, round_groups, choice, mass, pick, functions,
    };
    return table;
}

}  // namespace qanat
