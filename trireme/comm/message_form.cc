#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/comm/message_form.h>

namespace trireme::comm {

std::string MessageForm::describe() const {
  const auto known = static_cast<at::ScalarType>(type);
  return fmt::format("{} elements of {}", bytes / static_cast<int64_t>(c10::elementSize(known)),
                     c10::toString(known));
}

MessageForm form_of(const at::Tensor& tensor) {
  return {static_cast<int64_t>(tensor.nbytes()), static_cast<int32_t>(tensor.scalar_type())};
}

std::string difference_of(const MessageForm& sent, int from, int tag,
                          const MessageForm& expected) {
  if (sent == expected) return {};
  return fmt::format("rank {} sent {} with tag {}, but the tensor has {}", from, sent.describe(),
                     tag, expected.describe());
}

void refuse_message(const std::string& difference) {
  if (!difference.empty())
    throw Error(ErrorCode::invalid_argument, "comm", "recv: " + difference,
                "tensors of the same size and type");
}

}  // namespace trireme::comm
