// The kernels of quantised matrices of one instruction set; compiled once for each, with QANAT_ISA naming it.
#include "int4.hpp"
#include "int4_pack.hpp"
#include "int8_pack.hpp"
#include "int8_product.hpp"
#include "int8_quantise.hpp"
#if defined(QANAT_ISA_AMX)
#include "int4_tiles.hpp"
#include "int8_tiles.hpp"
#elif defined(__AVX2__) && !defined(QANAT_ISA_VNNI)
#include "int8_wide.hpp"
#endif

#define QANAT_JOIN_(a, b) a##b
#define QANAT_JOIN(a, b) QANAT_JOIN_(a, b)

namespace qanat {

const QuantisedTable& QANAT_JOIN(QANAT_ISA, _quantised)() {
    using namespace QANAT_ISA;
#if defined(QANAT_ISA_AMX)
    constexpr auto int8_products = linear_tiled, int4_products = linear_int4_tiled;
#elif defined(__AVX2__) && !defined(QANAT_ISA_VNNI)
    constexpr auto int8_products = linear_wide, int4_products = linear_int4;
#else
    constexpr auto int8_products = linear_int8, int4_products = linear_int4;
#endif
    static constexpr QuantisedTable table = {
        quantise, {pack_int8, int8_products, rows_int8}, {pack_int4, int4_products, rows_int4}};
    return table;
}

}  // namespace qanat
