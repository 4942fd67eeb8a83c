// Numbers of records as numbers of tensors. No torch.
#pragma once
#include <trireme/records/record.h>
#include <cstdint>

namespace trireme::data {

// Whether a field's numbers become int64 in a target, rather than float32.
bool is_whole(plan::DType dtype);
int64_t count_of(const records::Field& field);
// Copies all numbers of a field. Throws Error(unsupported) naming a type that is no plain number.
void copy_numbers(const records::Field& field, float* to);
void copy_numbers(const records::Field& field, int64_t* to);

}  // namespace trireme::data
