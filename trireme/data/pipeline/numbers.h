// Numbers of records as numbers of tensors. No torch.
#pragma once
#include <trireme/records/record.h>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace trireme::data {

// Whether a field's numbers become int64 in a target, rather than float32.
bool is_whole(plan::DType dtype);
int64_t count_of(const records::Field& field);
// Copies all numbers of a field. Throws Error(unsupported) naming a type that is no plain number,
// and Error(invalid_argument) naming a number that is not whole where int64 are asked for.
void copy_numbers(const records::Field& field, float* to);
void copy_numbers(const records::Field& field, int64_t* to);
// Throws Error(invalid_argument) naming the first token outside 0..classes-1; with 0 classes,
// below 0. `place` names its record.
void check_tokens(std::span<const int64_t> tokens, int64_t classes,
                  const std::function<std::string()>& place);

}  // namespace trireme::data
