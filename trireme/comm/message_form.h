// The size and type of a message, which travel with it. The receiver compares them with those of
// its tensor.
#pragma once
#include <ATen/core/Tensor.h>
#include <cstdint>
#include <string>

namespace trireme::comm {

struct MessageForm {
  int64_t bytes = 0;
  int32_t type = 0;  // at::ScalarType
  bool operator==(const MessageForm&) const = default;
  std::string describe() const;  // "10 elements of Float"
};
MessageForm form_of(const at::Tensor& tensor);

// What to tell the receiver of a message that does not fit: "rank 1 sent 10 elements of Float with
// tag 3, but the tensor has 4 elements of Double". Empty if it fits.
std::string difference_of(const MessageForm& sent, int from, int tag, const MessageForm& expected);
// Throws Error(invalid_argument) if `difference` says something.
void refuse_message(const std::string& difference);

}  // namespace trireme::comm
