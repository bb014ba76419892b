// The kernels of quantised matrices of one instruction set; compiled once for each, with QANAT_ISA naming it.
#include "int4.hpp"
#include "int4_pack.hpp"
#include "int8_pack.hpp"
#include "int8_product.hpp"
#include "int8_quantise.hpp"

#define QANAT_JOIN_(a, b) a##b
#define QANAT_JOIN(a, b) QANAT_JOIN_(a, b)

namespace qanat {

const QuantisedTable& QANAT_JOIN(QANAT_ISA, _quantised)() {
    using namespace QANAT_ISA;
    static constexpr QuantisedTable table = {
        quantise, {pack_int8, linear_int8, rows_int8}, {pack_int4, linear_int4, rows_int4}};
    return table;
}

}  // namespace qanat
