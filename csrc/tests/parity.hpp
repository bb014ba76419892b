// What the cases of the parity program share.
#pragma once

#include <string>
#include <vector>

#include "../runtime/machine.hpp"
#include "values.hpp"

namespace qanat {

// The type of a case's tensors, and whether special values are among them.
struct Variant {
    bool is_bf16, has_specials;
    std::string name() const;
};

// The line of one case: gathers its results, and prints itself at the end of its scope.
class Report {
public:
    Report(const InstructionSet& set, const std::string& name) : set_(set.name), name_(name) {}
    ~Report();
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    void add(const Values& values) { checksum_.add(values); }
    void add(uint32_t word) { checksum_.add(word); }

private:
    const char* set_;
    std::string name_;
    Checksum checksum_;
};

struct Case {
    void (*run)(const InstructionSet& set, Variant variant);
};

void rowwise_cases(std::vector<Case>& cases);
void product_cases(std::vector<Case>& cases);
void sequence_cases(std::vector<Case>& cases);
void quantised_cases(std::vector<Case>& cases);
void int4_cases(std::vector<Case>& cases);

inline std::vector<Case> all_cases() {
    std::vector<Case> cases;
    rowwise_cases(cases);
    product_cases(cases);
    sequence_cases(cases);
    quantised_cases(cases);
    int4_cases(cases);
    return cases;
}

}  // namespace qanat
