// What the loops of every processor are made of.
#pragma once

#include "limits.hpp"

namespace qanat {

constexpr int kChains = 12;

// Keeps a value that nobody reads.
template <class Value>
void keep(const Value& value) {
    asm volatile("" : : "m"(value) : "memory");
}

// Hides where a value comes from, so that it is computed anew.
template <class Value>
Value hidden(Value value) {
    asm volatile("" : "+m"(value));
    return value;
}

}  // namespace qanat
