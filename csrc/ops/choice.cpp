// Both ends of a pass: rows of a table of embeddings, and the most likely token of each row of scores.
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

void run_choice(ChoiceArguments arguments, int64_t* ids, bool* are_finite, size_t num_rows) {
    Runtime& runtime = Runtime::get();
    std::lock_guard<std::mutex> turn(runtime.turn());
    const size_t num_blocks = arguments.num_blocks(), num_tasks = num_rows * num_blocks;
    runtime.scratch().reset(2 * Scratch::size_of<float>(num_tasks));
    arguments.peaks = runtime.scratch().take<float>(num_tasks);
    arguments.poisons = runtime.scratch().take<float>(num_tasks);
    runtime.pool().run(num_tasks, double(num_rows) * double(arguments.num_scores), [&](size_t begin, size_t end) {
        runtime.kernels().choice(arguments, begin, end);
    });
    for (size_t row = 0; row < num_rows; ++row) {
        const float* peaks = arguments.peaks + row * num_blocks;
        const float* poisons = arguments.poisons + row * num_blocks;
        size_t best = 0;
        bool is_finite = true;
        for (size_t block = 0; block < num_blocks; ++block) {
            if (peaks[block] > peaks[best]) best = block;
            is_finite = is_finite && poisons[block] == 0.0f;
        }
        const float* scores = arguments.scores + row * arguments.stride;
        size_t id = best * kChoiceBlock;
        while (id + 1 < arguments.num_valid && !(scores[id] == peaks[best])) ++id;
        ids[row] = static_cast<int64_t>(id);
        are_finite[row] = is_finite;
    }
}

}  // namespace qanat
