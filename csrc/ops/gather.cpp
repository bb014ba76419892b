// Rows and ids that are moved as they are.
#include <algorithm>
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

void run_join(const std::vector<JoinedPart>& parts, size_t num_rows, void* out) {
    char* to = static_cast<char*>(out);
    for (size_t row = 0; row < num_rows; ++row) {
        for (const JoinedPart& part : parts) {
            std::memcpy(to, static_cast<const char*>(part.rows) + row * part.stride_bytes, part.row_bytes);
            to += part.row_bytes;
        }
    }
}

void run_scatter(const void* rows, const int64_t* places, size_t num_rows, size_t row_bytes, void* table, size_t table_rows) {
    for (size_t row = 0; row < num_rows; ++row) {
        if (places[row] < 0) continue;
        const size_t place = static_cast<size_t>(places[row]);
        if (place >= table_rows) throw std::out_of_range("a row is to be stored beyond the end of its table");
        std::memcpy(static_cast<char*>(table) + place * row_bytes, static_cast<const char*>(rows) + row * row_bytes, row_bytes);
    }
}

void run_known_tokens(const int64_t* choice, size_t num_rows, int64_t* out) {
    std::transform(choice, choice + num_rows, out, [](int64_t token) { return std::max<int64_t>(token, 0); });
}

}  // namespace qanat
