// The size and type of a message, which travel with it. The receiver compares them with those of
// its tensor.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/error.h>
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

// The facts of a message that does not fit, for its receiver.
struct MessageDifference {
  MessageForm sent, expected;
  int from = 0, tag = 0;
  bool empty() const { return sent == expected; }
  // "rank 1 sent 10 elements of Float with tag 3, but the tensor has 4 elements of Double"
  std::string describe() const;
};
class MessageDiffers : public Error {
 public:
  explicit MessageDiffers(const MessageDifference& difference);
  const MessageDifference& difference() const { return difference_; }

 private:
  MessageDifference difference_;
};
// Throws MessageDiffers, an Error(invalid_argument), unless the difference is empty.
void refuse_message(const MessageDifference& difference);

}  // namespace trireme::comm
