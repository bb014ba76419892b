// Float matrices that become whole numbers.
#include <memory>

#include "../runtime/floating_point.hpp"
#include "ops.hpp"

namespace qanat {

void run_rounding(const RoundingArguments& arguments, size_t first, size_t last) {
    const FloatingPointScope scope;
    constexpr size_t kRooms = 3, kLanes = 16;
    const std::unique_ptr<float[]> room(new float[kRooms * (arguments.group_size + kLanes)]);
    Runtime::get().kernels().round_groups(arguments, room.get(), first, last);
}

}  // namespace qanat
