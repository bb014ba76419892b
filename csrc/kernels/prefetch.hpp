// How far ahead of the products the weights are asked for: one distance for all that read a panel as a stream.
#pragma once

#include <cstddef>

namespace qanat {

constexpr size_t kPrefetchBytes = 2048;

}  // namespace qanat
