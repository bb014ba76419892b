// The product of rows with one packed matrix.
#include <algorithm>

#include "ops.hpp"
#include "product.hpp"

namespace qanat {

void run_linear(const Rows& x, size_t num_rows, const PackedMatrix& matrix, void* out, bool is_out_bf16) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const PackedView& packed = matrix.view();
    runtime.scratch().reset(Prepared::size_bytes(packed, num_rows));
    const Prepared rows(runtime, packed, num_rows);
    runtime.pool().run(num_rows, double(num_rows * packed.num_inputs),
                       [&](size_t begin, size_t end) { rows.fill(x, begin, end); });
    const Target target{out, packed.num_outputs, is_out_bf16, nullptr, nullptr};
    const size_t chunk = row_chunk(packed), num_chunks = (num_rows + chunk - 1) / chunk;
    const size_t num_panels = packed.num_panels();
    const double cost = double(num_rows) * double(packed.num_outputs) * double(packed.num_inputs);
    // Tasks are pairs of a chunk of rows and a panel, panels fastest.
    runtime.pool().run(num_chunks * num_panels, cost, [&](size_t begin, size_t end) {
        while (begin < end) {
            const size_t row = begin / num_panels * chunk, first = begin % num_panels;
            const size_t last = std::min(num_panels, first + (end - begin));
            rows.multiply(packed, target, row, std::min(num_rows, row + chunk), first, last);
            begin += last - first;
        }
    });
}

}  // namespace qanat
