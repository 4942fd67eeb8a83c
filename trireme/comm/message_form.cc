#include <fmt/format.h>

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

std::string MessageDifference::describe() const {
  return fmt::format("rank {} sent {} with tag {}, but the tensor has {}", from, sent.describe(),
                     tag, expected.describe());
}

MessageDiffers::MessageDiffers(const MessageDifference& difference)
    : Error(ErrorCode::invalid_argument, "comm", "recv: " + difference.describe(),
            "tensors of the same size and type"),
      difference_(difference) {}

void refuse_message(const MessageDifference& difference) {
  if (!difference.empty()) throw MessageDiffers(difference);
}

}  // namespace trireme::comm
