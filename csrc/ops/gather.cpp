// Rows of a table that lies as it is.
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops.hpp"

namespace qanat {

void run_gather(const int64_t* ids, size_t num_rows, const void* table, size_t table_rows, size_t row_bytes, void* out) {
    for (size_t row = 0; row < num_rows; ++row) {
        const size_t id = static_cast<size_t>(ids[row]);
        if (id >= table_rows)
            throw std::out_of_range("a token id lies outside the table of " + std::to_string(table_rows) + " rows");
        std::memcpy(static_cast<char*>(out) + row * row_bytes, static_cast<const char*>(table) + id * row_bytes, row_bytes);
    }
}

}  // namespace qanat
